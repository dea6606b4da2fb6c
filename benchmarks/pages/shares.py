"""Make the part of Figure 1 (sample efficiency) that is about semantic roles, from the records of docs/results.md.

    python benchmarks/pages/shares.py ROLES
    python benchmarks/pages/analysis.py docs/analysis.md ROLES --join

The first command writes what `elmo analyze efficiency` would write into ROLES, from the records of trainings on a
hundredth of PropBank, a tenth, and all of it. The second one adds it to the page of analyses.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from elmo.analysis.paper.finding import Finding, Table, write_finding
from elmo.analysis.paper.published import TASK_NAMES
from elmo.analysis.paper.runs import Outcome, score_rows
from elmo.analysis.paper.tasks import WITH, WITHOUT, draw_efficiency, efficiency_finding
from elmo.errors import ElmoError

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that `common` is found
from common.records import BASELINE, RECORDS, Run, read_records
from common.script import script

TASK = "srl"

MODEL = "en, 3 layers, 384 wide"
"""The package's model, as `elmo analyze` describes it."""


def find_efficiency(runs: Sequence[Run]) -> Finding:
    """Return the dev scores of a task's runs over the shares of its training set, with their deviations over seeds.

    The records do not tell in which epoch a run had which score, so the epochs are not compared.
    """
    columns = {share: f"{100 * share:g} %" for share in sorted({run.share for run in runs})}
    outcomes = {
        row: {
            columns[run.share]: Outcome(run.metric, [*run.results], [])
            for run in sorted(runs, key=lambda run: run.share)
            if (run.kind == BASELINE) is is_baseline
        }
        for row, is_baseline in ((WITH, False), (WITHOUT, True))
    }
    means, deviations = score_rows(outcomes)
    name = TASK_NAMES[TASK]
    table = Table(name, "dev F1 (%)", [*columns.values()], means, spread=deviations)
    seconds = {f"{name}, {run.data}, {run.kind}": sum(result.seconds for result in run.results) for run in runs}
    return efficiency_finding(MODEL, False, [table], {}, seconds)


@script
def main() -> None:
    """Read the records and write the finding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the folder to write to")
    parser.add_argument("--records", type=Path, default=RECORDS, help="the folder of records; default: %(default)s")
    arguments = parser.parse_args()
    runs = [run for run in read_records(arguments.records) if run.task == TASK]
    if not runs:
        raise ElmoError(f"{arguments.records}: holds no record of {TASK}; make some with paper_tasks.py")
    if len(models := sorted({run.kind for run in runs} - {BASELINE})) > 1:
        raise ElmoError(f"{arguments.records}: has records of {TASK} with {', '.join(models)}; keep those of one model")
    for path in write_finding(arguments.out, find_efficiency(runs), draw_efficiency):
        print(path)


if __name__ == "__main__":
    main()
