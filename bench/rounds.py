"""The run itself: round by round, and in each scenario all contenders right after each other.

So noise of the machine affects all of them. The order rotates by one each round, so that no
contender is always first or always after the same neighbour.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import catalogue
from bench.ablation import amounts as ablation_amounts
from bench.ablation.job_path import WrongBatchError
from bench.ablation.scenario import AblationRound
from bench.batches.amounts import Amounts
from bench.batches.export_check import ExportWrongError
from bench.batches.figures import BatchFigure
from bench.batches.scenario import BatchesRound
from bench.catalogue import Scenario
from bench.client_process import ClientFailedError, ClientProcess
from bench.contenders.contract import Ability, Contender
from bench.dashboard import amounts as dashboard_amounts
from bench.dashboard.scenario import DashboardRound
from bench.footprint.figures import FootprintFigure
from bench.footprint.scenario import FootprintRound
from bench.http.figures import HttpFigure
from bench.http.paced import NotServedError
from bench.http.scenario import HttpRound
from bench.http.wrk import RefusedError
from bench.job_cost import JobCost
from bench.llm import amounts as llm_amounts
from bench.llm.figures import LlmFigure
from bench.llm.scenario import LlmRound
from bench.measure import percentile
from bench.process_tree import LostTimeError
from bench.processes import ChildEndedError, Processes
from bench.progress_lines import ProgressLines
from bench.remote import amounts as remote_amounts
from bench.remote.figures import RemoteFigure
from bench.remote.scenario import RemoteRound
from bench.results import Results
from bench.scenarios.bulk import enqueue_bulk
from bench.scenarios.claim_history import claim_history
from bench.scenarios.context import Context
from bench.scenarios.drain import StalledError, drain
from bench.scenarios.enqueue import LostJobsError, enqueue_in_flight
from bench.scenarios.latency import NotStartedError, latency
from bench.sizes import Sizes
from bench.snapshot import amounts as snapshot_amounts
from bench.snapshot.figures import SnapshotFigure
from bench.snapshot.scenario import SnapshotRound
from bench.stores import Stores
from bench.targets import OURS

# Errors of one contender that do not end the run: they are reported beside the table.
CONTENDER_FAULTS = (
    ClientFailedError,
    ChildEndedError,
    LostJobsError,
    LostTimeError,
    NotStartedError,
    StalledError,
)


class Rounds:
    """Runs the chosen scenarios for the chosen contenders and collects what they found."""

    def __init__(
        self,
        contenders: Sequence[Contender],
        scenarios: Sequence[Scenario],
        sizes: Sizes,
        amounts: Amounts,
        chats: llm_amounts.Amounts,
        calls: remote_amounts.Amounts,
        visits: dashboard_amounts.Amounts,
        ablations: ablation_amounts.Amounts,
        snapshots: snapshot_amounts.Amounts,
        stores: Stores,
        processes: Processes,
        folder: Path,
        lines: ProgressLines,
    ) -> None:
        self._contenders = contenders
        self._scenarios = scenarios
        self._sizes = sizes
        self._amounts = amounts
        self._chats = chats
        self._calls = calls
        self._visits = visits
        self._ablations = ablations
        self._snapshots = snapshots
        self._stores = stores
        self._processes = processes
        self._folder = folder
        self._lines = lines
        self._drain_rates: dict[str, dict[int, float]] = {
            contender.name: {} for contender in contenders
        }
        self.results = Results()

    async def install(self) -> None:
        for contender in self._contenders:
            client = await ClientProcess.start(contender, self._processes)
            await self._stores.install(client)
            await client.stop()

    async def run(self, rounds: int) -> None:
        for number in range(rounds):
            first = number % len(self._contenders)
            order = [*self._contenders[first:], *self._contenders[:first]]
            clients = {
                contender.name: await ClientProcess.start(contender, self._processes)
                for contender in order
            }
            for scenario in self._scenarios:
                self._lines.note(f"round {number + 1} of {rounds}, {scenario}")
                if scenario is Scenario.HTTP:
                    await self._http()
                    continue
                if scenario is Scenario.BATCHES:
                    await self._batches()
                    continue
                if scenario is Scenario.LLM:
                    await self._llm()
                    continue
                if scenario is Scenario.REMOTE:
                    await self._remote()
                    continue
                if scenario is Scenario.DASHBOARD:
                    await self._dashboard()
                    continue
                if scenario is Scenario.FOOTPRINT:
                    await self._footprint()
                    continue
                if scenario is Scenario.ABLATION:
                    await self._ablation(number)
                    continue
                if scenario is Scenario.SNAPSHOT:
                    await self._snapshot()
                    continue
                for contender in order:
                    clients[contender.name] = await self._turn(scenario, clients[contender.name])
            for client in clients.values():
                await client.stop()

    async def _http(self) -> None:
        """Coatcheck's server beside the comparison servers; the other queues have none."""
        if not any(contender.name == OURS for contender in self._contenders):
            return
        try:
            await HttpRound(
                self._stores.postgres, self._processes, self._folder, self._sizes, self._add_http
            ).run()
        except (*CONTENDER_FAULTS, RefusedError, NotServedError) as fault:
            self.results.failures["http"].append(str(fault))
            self._lines.fault("http", Scenario.HTTP, fault)

    def _add_http(self, figure: HttpFigure, value: float) -> None:
        self.results.http[figure].append(value)
        self._lines.note(f"    {figure}: {value:,.1f}")

    async def _batches(self) -> None:
        if not any(contender.name == OURS for contender in self._contenders):
            return
        try:
            await BatchesRound(
                self._stores.postgres,
                self._processes,
                self._folder,
                self._amounts,
                self._add_batches,
                self.results.batches_memory,
            ).run()
        except* (*CONTENDER_FAULTS, NotServedError, ExportWrongError) as faults:
            for fault in faults.exceptions:
                self.results.failures["batches"].append(str(fault))
                self._lines.fault("batches", Scenario.BATCHES, fault)

    def _add_batches(self, figure: BatchFigure, value: float) -> None:
        self.results.batches[figure].append(value)
        self._lines.note(f"    {figure}: {value:,.1f}")

    async def _llm(self) -> None:
        if not any(contender.name == OURS for contender in self._contenders):
            return
        try:
            await LlmRound(self._stores.postgres, self._processes, self._chats, self._add_llm).run()
        except (*CONTENDER_FAULTS, NotServedError) as fault:
            self.results.failures["llm"].append(str(fault))
            self._lines.fault("llm", Scenario.LLM, fault)

    def _add_llm(self, figure: LlmFigure, value: float) -> None:
        self.results.llm[figure].append(value)
        self._lines.note(f"    {figure}: {value:,.1f}")

    async def _remote(self) -> None:
        if not any(contender.name == OURS for contender in self._contenders):
            return
        try:
            await RemoteRound(
                self._stores.postgres,
                self._processes,
                self._folder,
                self._calls,
                self._add_remote,
            ).run()
        except (*CONTENDER_FAULTS, NotServedError) as fault:
            self.results.failures["remote"].append(str(fault))
            self._lines.fault("remote", Scenario.REMOTE, fault)

    def _add_remote(self, figure: RemoteFigure, value: float) -> None:
        self.results.remote[figure].append(value)
        self._lines.note(f"    {figure}: {value:,.1f}")

    async def _dashboard(self) -> None:
        """Once per run: writing a history of millions takes minutes; pages are requested often."""
        if self.results.dashboard or not any(each.name == OURS for each in self._contenders):
            return
        try:
            await DashboardRound(
                self._stores.postgres, self._processes, self._visits, self._add_dashboard
            ).run()
        except (*CONTENDER_FAULTS, NotServedError) as fault:
            self.results.failures["dashboard"].append(str(fault))
            self._lines.fault("dashboard", Scenario.DASHBOARD, fault)

    def _add_dashboard(self, figure: str, value: float) -> None:
        self.results.dashboard[figure].append(value)
        self._lines.note(f"    {figure}: {value:,.1f}")

    async def _footprint(self) -> None:
        if not any(contender.name == OURS for contender in self._contenders):
            return
        try:
            await FootprintRound(
                self._stores.postgres, self._processes, self._folder, self._add_footprint
            ).run()
        except (*CONTENDER_FAULTS, NotServedError) as fault:
            self.results.failures["footprint"].append(str(fault))
            self._lines.fault("footprint", Scenario.FOOTPRINT, fault)

    def _add_footprint(self, figure: FootprintFigure, value: float) -> None:
        self.results.footprint[figure].append(value)
        self._lines.note(f"    {figure}: {value:,.1f}")

    async def _ablation(self, number: int) -> None:
        if not any(contender.name == OURS for contender in self._contenders):
            return
        try:
            await AblationRound(
                self._stores.postgres, self._ablations, number, self._add_ablation
            ).run()
        except (*CONTENDER_FAULTS, WrongBatchError) as fault:
            self.results.failures["ablation"].append(str(fault))
            self._lines.fault("ablation", Scenario.ABLATION, fault)

    def _add_ablation(self, figure: str, value: float) -> None:
        self.results.ablation[figure].append(value)
        self._lines.note(f"    {figure}: {value:,.1f}")

    async def _snapshot(self) -> None:
        """Once per run: it is long, and compares its end with its beginning."""
        if self.results.snapshot or not any(each.name == OURS for each in self._contenders):
            return
        try:
            await SnapshotRound(
                self._stores.postgres,
                self._processes,
                self._folder,
                self._snapshots,
                self._add_snapshot,
            ).run()
        except CONTENDER_FAULTS as fault:
            self.results.failures["snapshot"].append(str(fault))
            self._lines.fault("snapshot", Scenario.SNAPSHOT, fault)

    def _add_snapshot(self, sample: Mapping[str, float]) -> None:
        self.results.snapshot.append(dict(sample))
        self._lines.note(
            f"    minute {sample[SnapshotFigure.MINUTE]:.1f}: "
            f"{sample[SnapshotFigure.PACED_CLAIM]:,.0f} us/job paced, "
            f"{sample[SnapshotFigure.BURST_CLAIM]:,.1f} in a burst, "
            f"{sample[SnapshotFigure.BURST_RATE]:,.0f} jobs/s"
        )

    async def _turn(self, scenario: Scenario, client: ClientProcess) -> ClientProcess:
        """One contender's turn at one scenario; returns its client for the next."""
        contender = client.contender
        context = Context(
            contender=contender,
            client=client,
            stores=self._stores,
            processes=self._processes,
            folder=self._folder,
            sizes=self._sizes,
            drain_rates=self._drain_rates[contender.name],
        )
        try:
            await self._measure(scenario, context)
        except CONTENDER_FAULTS as fault:
            self.results.failures[contender.name].append(f"{scenario}: {fault}")
            self._lines.fault(contender.label, scenario, fault)
            # The client may be in any state now.
            await client.stop()
            return await ClientProcess.start(contender, self._processes)
        return client

    async def _measure(self, scenario: Scenario, context: Context) -> None:
        abilities = context.contender.abilities
        match scenario:
            case Scenario.ENQUEUE:
                self._add(context, catalogue.ENQUEUE, await enqueue_in_flight(context))
            case Scenario.BULK:
                if Ability.BULK in abilities:
                    self._add(context, catalogue.BULK, await enqueue_bulk(context))
            case Scenario.DRAIN_1:
                await self._drain(context, catalogue.DRAIN_1, workers=1)
            case Scenario.DRAIN_2:
                await self._drain(context, catalogue.DRAIN_2, workers=2)
            case Scenario.LATENCY:
                await self._latency(context)
            case Scenario.CLAIM:
                if Ability.CLAIM_COST in abilities:
                    costs = await claim_history(context)
                    self._add(context, catalogue.CLAIM_EMPTY, costs.empty)
                    self._add(context, catalogue.CLAIM_HISTORY, costs.with_history)
            case Scenario.HTTP | Scenario.BATCHES | Scenario.LLM:
                raise AssertionError("not a contender's turn")

    async def _drain(self, context: Context, figure: catalogue.Figure, workers: int) -> None:
        drained = await drain(context, workers)
        self._add(context, figure, drained.per_second)
        self._add_cost(context, catalogue.DRAIN_COSTS[figure], drained.cost)
        self.results.kept[context.contender.name] = {
            "records": drained.kept.records,
            "results": drained.kept.results,
        }

    def _add_cost(self, context: Context, figures: catalogue.CostFigures, cost: JobCost) -> None:
        self._add(context, figures.workers, cost.worker_us)
        self._add(context, figures.serving, cost.serving_us)
        self._add(context, figures.background, cost.background_us)
        self._add(context, figures.total, cost.total_us)
        if cost.wal_bytes is not None:
            self._add(context, figures.wal, cost.wal_bytes)
        if cost.transactions is not None:
            self._add(context, figures.transactions, cost.transactions * 1_000)

    async def _latency(self, context: Context) -> None:
        found = await latency(context)
        name = context.contender.name
        self._add(context, catalogue.START_P50, percentile(found.start, 50))
        self._add(context, catalogue.START_P99, percentile(found.start, 99))
        self.results.add_samples(name, catalogue.START_P50, found.start)
        if found.seen is not None:
            self._add(context, catalogue.SEEN_P50, percentile(found.seen, 50))
            self._add(context, catalogue.SEEN_P99, percentile(found.seen, 99))
            self.results.add_samples(name, catalogue.SEEN_P50, found.seen)

    def _add(self, context: Context, figure: catalogue.Figure, value: float) -> None:
        self.results.add(context.contender.name, figure, value)
        self._lines.figure(context.contender.label, figure, value)
