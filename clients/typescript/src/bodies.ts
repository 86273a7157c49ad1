/** Types of the server's responses, generated from the OpenAPI document, under short names. */

import type { components } from "./generated/openapi.js";

type Schemas = components["schemas"];

/** A job of a service. */
export type JobBody = Schemas["coatcheck.products.gateway.schemas.Job"];
/** The response to a submission. */
export type Ticket = Schemas["coatcheck.products.gateway.schemas.Ticket"];
export type JobPage = Schemas["coatcheck.products.gateway.schemas.JobPage"];
export type Progress = Schemas["coatcheck.products.gateway.schemas.Progress"];
export type JobArtifact = Schemas["JobArtifact"];

export type BatchBody = Schemas["BatchJob"];
export type BatchRun = Schemas["BatchRun"];
export type BatchTask = Schemas["BatchTask"];
/** A task with its input and files. */
export type WholeBatchTask = Schemas["WholeTask"];
export type BatchBadLine = Schemas["BadLineItem"];
export type BatchExport = Schemas["Export"];
export type TaskCounts = Schemas["TaskCounts"];
export type Upload = Schemas["Upload"];

export type ChatBody = Schemas["coatcheck.products.llm.schemas.Job"];
export type ChatTicket = Schemas["coatcheck.products.llm.schemas.Ticket"];

export type SpeechTaskBody = Schemas["SpeechTask"];
export type SpeechTicket = Schemas["SpeechTicket"];
export type Voice = Schemas["Voice"];

/** A graph, and the diagnostics of its analysis. */
export type GraphResult = Schemas["GraphResult"];
/** The state of a graph job, in the response to each poll. */
export type GraphEnvelope = Schemas["Envelope"];

export type Lane = Schemas["Lane"];
export type UsageDay = Schemas["UsageDay"];

/** Why a job is waiting, its position in the queue, and when it should start and finish. */
export type Explanation = Schemas["ExplainedJob"];
/** A reason why a job is waiting. */
export type Blocker = Schemas["ExplainedBlocker"];
/** Recent statistics of an organisation's jobs, and the current backlog. */
export type Overview = Schemas["OverviewBody"];

/** A job of the organisation, from any surface. `state` is one of the engine's states. */
export type OrgJob = Schemas["OrgJob"];
/** The same with its result, if it is short. */
export type WholeOrgJob = Schemas["WholeOrgJob"];
export type OrgJobPage = Schemas["OrgJobPage"];
export type Timeline = Schemas["Timeline"];
export type TimelineItem = Schemas["TimelineItem"];
export type JobLogItem = Schemas["LogItem"];
export type JobLogPage = Schemas["LogPage"];
export type BulkAnswer = Schemas["BulkAnswer"];
