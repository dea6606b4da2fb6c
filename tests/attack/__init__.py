"""The project's attack on itself: `make test-attack`, some minutes on two cores, apart from `make test`.

It has four parts, each of which prints a row of the table. All figures but the counts must be 0, or the exit code is 1.

- mutations: small valid files of every format that the library reads, with bits flipped, or with pieces cut off,
  inserted, removed, swapped or doubled. Each must load as before, load differently if its format has no checksum (these
  are listed), or be refused with one sentence. It must take ten seconds at most and bounded memory, and leave or change
  nothing.
- hostile: files that were made to harm. Each must be refused with one sentence, and none of its code may run.
- pairs: two processes that write the same target at once. One must succeed, the other may be refused, and the target
  must be that of one of the two.
- kills: commands that are killed at any moment. The same command must then finish with the same results to the bit.

Everything random follows from `--seed` and the number of the case, so that every failure can be repeated with the
command that is printed for it, such as `python -m attack --only mutations --seed 0 --case 4711` (in `tests/`, with the
package installed). `--only kills --count 50` runs fewer cases. `--minutes` limits the time of all parts together, and
cases that are left then are reported and count as a failure.

`models` makes the tiny models and folders, `workers` runs the cases in processes of their own, and `trees` compares
folders.
"""
