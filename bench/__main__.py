"""`python -m bench`: starts the servers, runs the rounds, writes the report. See README.md."""

import asyncio
import shutil
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from bench import facts, redis_server
from bench.ablation import amounts as ablation_amounts
from bench.ablation.report import ablation_tables, write_ablation
from bench.batches import amounts
from bench.batches.report import batches_tables, write_batches
from bench.catalogue import Scenario
from bench.chart import write_chart
from bench.contenders import CONTENDERS, REFERENCE
from bench.contenders.contract import Contender, StoreKind
from bench.dashboard import amounts as dashboard_amounts
from bench.dashboard.report import dashboard_tables, write_dashboard
from bench.footprint.report import footprint_tables, write_footprint
from bench.http import wrk
from bench.llm import amounts as llm_amounts
from bench.llm.report import llm_tables, write_llm
from bench.options import Options, parse
from bench.postgres import Postgres
from bench.processes import Processes
from bench.progress_lines import ProgressLines
from bench.redis_server import RedisServer
from bench.remote import amounts as remote_amounts
from bench.remote.report import remote_tables, write_remote
from bench.report import figure_table, markdown
from bench.results import Results
from bench.rounds import Rounds
from bench.sizes import FULL, QUICK
from bench.snapshot import amounts as snapshot_amounts
from bench.snapshot.chart import write_snapshot_chart
from bench.snapshot.report import snapshot_tables, write_snapshot
from bench.stores import Stores
from bench.targets import OURS

OURS_ALONE = {
    *(Scenario.HTTP, Scenario.BATCHES, Scenario.LLM, Scenario.REMOTE, Scenario.DASHBOARD),
    *(Scenario.FOOTPRINT, Scenario.ABLATION, Scenario.SNAPSHOT),
}
WRK_MISSING = "wrk is not installed and could not be"
REDIS_MISSING = "redis-server is not installed and could not be"


async def run(options: Options, folder: Path) -> Results:
    """One whole run. Everything it starts is ended before it returns, however it ends."""
    lines = ProgressLines()
    contenders, skipped = _runnable(_concerned(options))
    for name, reason in skipped.items():
        lines.note(f"not run: {name}: {reason}")
    scenarios = options.scenarios
    if Scenario.HTTP in scenarios and not wrk.is_installed():
        scenarios = tuple(each for each in scenarios if each is not Scenario.HTTP)
        skipped["over HTTP"] = WRK_MISSING
        lines.note(f"not run: http: {WRK_MISSING}")
    logs = folder / "logs"
    logs.mkdir()
    processes = Processes(logs)
    postgres = Postgres(folder / "postgres")
    redis = RedisServer(folder / "redis", processes) if _need_redis(contenders) else None
    machine = facts.machine()
    try:
        lines.note("starting PostgreSQL" + (" and Redis" if redis else ""))
        await postgres.start()
        if redis is not None:
            await redis.start()
        rounds = Rounds(
            contenders,
            scenarios,
            QUICK if options.quick else FULL,
            _amounts(options),
            _chats(options),
            _calls(options),
            _visits(options),
            _ablations(options),
            _snapshots(options),
            Stores(postgres, redis),
            processes,
            folder,
            lines,
        )
        await rounds.install()
        rounds.results.facts = {
            "machine": machine,
            "options": {"rounds": options.rounds, "quick": options.quick},
            "postgres": await postgres.settings(),
            "redis": await _redis_line(redis),
            "versions": {contender.name: facts.version(contender) for contender in contenders},
        }
        rounds.results.skipped = skipped
        await rounds.run(options.rounds)
        return rounds.results
    finally:
        await processes.stop_all()
        await postgres.stop()


def _amounts(options: Options) -> amounts.Amounts:
    return amounts.QUICK if options.quick else amounts.FULL


def _chats(options: Options) -> llm_amounts.Amounts:
    return llm_amounts.QUICK if options.quick else llm_amounts.FULL


def _calls(options: Options) -> remote_amounts.Amounts:
    return remote_amounts.QUICK if options.quick else remote_amounts.FULL


def _visits(options: Options) -> dashboard_amounts.Amounts:
    return dashboard_amounts.QUICK if options.quick else dashboard_amounts.FULL


def _ablations(options: Options) -> ablation_amounts.Amounts:
    return ablation_amounts.QUICK if options.quick else ablation_amounts.FULL


def _snapshots(options: Options) -> snapshot_amounts.Amounts:
    amounts = snapshot_amounts.QUICK if options.quick else snapshot_amounts.FULL
    if options.snapshot_minutes is not None:
        amounts = replace(amounts, minutes=options.snapshot_minutes)
    if options.snapshot_rows is not None:
        amounts = replace(amounts, history=options.snapshot_rows)
    return amounts


def _concerned(options: Options) -> tuple[Contender, ...]:
    """The contenders of the chosen scenarios: some scenarios are for Coatcheck alone."""
    if set(options.scenarios) - OURS_ALONE:
        return options.contenders
    return tuple(contender for contender in options.contenders if contender.name == OURS)


def _runnable(chosen: tuple[Contender, ...]) -> tuple[list[Contender], dict[str, str]]:
    """Removes the contenders whose server is missing, with the reason."""
    if redis_server.is_installed():
        return list(chosen), {}
    runnable = [contender for contender in chosen if contender.store is not StoreKind.REDIS]
    skipped = {
        contender.label: REDIS_MISSING for contender in chosen if contender.store is StoreKind.REDIS
    }
    return runnable, skipped


def _need_redis(contenders: list[Contender]) -> bool:
    return any(contender.store is StoreKind.REDIS for contender in contenders)


async def _redis_line(redis: RedisServer | None) -> str | None:
    if redis is None:
        return None
    settings = ", ".join(
        f"{name} {value or 'none'}" for name, value in redis_server.SETTINGS.items()
    )
    return f"{await redis.version()}, unix socket, {settings}"


def write(results: Results, output: Path, options: Options) -> list[str]:
    """Writes the report's files with results; returns their names."""
    output.mkdir(parents=True, exist_ok=True)
    written = []
    if results.batches:
        write_batches(output, results, _amounts(options))
        written += ["batches.md", "batches.json"]
    if results.llm:
        write_llm(output, results, _chats(options))
        written += ["llm.md", "llm.json"]
    if results.remote:
        write_remote(output, results, _calls(options))
        written += ["remote.md", "remote.json"]
    if results.dashboard:
        write_dashboard(output, results, _visits(options))
        written += ["dashboard.md", "dashboard.json"]
    if results.footprint:
        write_footprint(output, results)
        written += ["footprint.md", "footprint.json"]
    if results.ablation:
        write_ablation(output, results, _ablations(options))
        written += ["ablation.md", "ablation.json"]
    if results.snapshot:
        write_snapshot(output, results, _snapshots(options))
        write_snapshot_chart(results.snapshot, output / "snapshot.png")
        written += ["snapshot.md", "snapshot.json", "snapshot.png"]
    if results.rounds or results.http:
        _write_latest(results, output)
        written += ["latest.md", "latest.json", "latest.png"]
    return written


def _write_latest(results: Results, output: Path) -> None:
    contenders = [contender for contender in CONTENDERS if contender.name in results.rounds]
    reference = next(contender for contender in CONTENDERS if contender.name == REFERENCE)
    results.write(output / "latest.json")
    (output / "latest.md").write_text(markdown(results, contenders, reference))
    write_chart(results, contenders, reference, output / "latest.png")


async def interruptible(options: Options, folder: Path) -> Results:
    """Makes SIGTERM and SIGHUP end the run as Ctrl-C does: with everything cleaned up."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(run(options, folder))
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
    return await task


def main() -> int:
    options = parse(sys.argv[1:])
    folder = Path(tempfile.mkdtemp(prefix="coatcheck-bench-", dir=options.folder))
    # As root, PostgreSQL runs under its own user, who must be able to enter.
    folder.chmod(0o755)
    try:
        results = asyncio.run(interruptible(options, folder))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("interrupted; all started processes were stopped", file=sys.stderr)
        return 130
    finally:
        shutil.rmtree(folder)
    contenders = [contender for contender in CONTENDERS if contender.name in results.rounds]
    tables = [
        figure_table(results, contenders),
        batches_tables(results),
        llm_tables(results),
        remote_tables(results),
        dashboard_tables(results, _visits(options)),
        footprint_tables(results),
        ablation_tables(results),
        snapshot_tables(results),
    ]
    print("\n\n".join(each for each in tables if each))
    if options.output is not None:
        written = write(results, options.output, options)
        print(f"\nwritten to {options.output}: {', '.join(written) or 'nothing'}")
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
