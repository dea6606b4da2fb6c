"""The project's attack on itself: `make test-attack`, some minutes on two cores, apart from `make test`.

Four parts, each of which prints a row of the table; all but the counts must be 0, or the exit code is 1:

- mutations: small valid files of every format that the library reads, with bits flipped, and pieces cut off, put in,
  taken out, swapped or doubled. Each must load as before, load otherwise where its format has no checksum (these are
  listed), or be refused with one sentence, within ten seconds, in bounded memory, and with nothing left or changed.
- hostile: files that were made to harm. Each must be refused with one sentence, running nothing.
- pairs: two processes that write the same target at once. One must succeed, the other may be refused, and the target
  must be that of one of the two.
- kills: commands that are killed at any moment. The same command again must finish, with the same results to the bit.

All that chance decides follows from `--seed` and the number of the case, so that every failure can be repeated with
the line that is printed for it, as `python -m attack --only mutations --seed 0 --case 4711` (in `tests/`, with the
package installed). `--only kills --count 50` runs fewer cases, and `--minutes` bounds all parts together: cases that
are left then are told, and count as a failure.

`models` makes the tiny models and folders, `workers` runs the cases in processes of their own, and `trees` compares
folders.
"""
