/** Types of the server's responses, generated from the OpenAPI document, under short names. */

import type { components } from "./generated/openapi.js";

type Schemas = components["schemas"];

/** A job of a service. */
export type JobBody = Schemas["GatewayJob"];
/** The response to a submission. */
export type Ticket = Schemas["GatewayTicket"];
export type JobPage = Schemas["GatewayJobPage"];
export type Progress = Schemas["GatewayProgress"];
export type JobArtifact = Schemas["ArtifactItem"];

export type BatchBody = Schemas["BatchJob"];
export type BatchRun = Schemas["BatchRunBody"];
export type BatchTask = Schemas["BatchTaskBody"];
/** A task with its input and files. */
export type WholeBatchTask = Schemas["WholeTask"];
export type BatchBadLine = Schemas["BadLineItem"];
export type BatchExport = Schemas["ExportBody"];
export type TaskCounts = Schemas["TaskCountsBody"];
export type Upload = Schemas["Upload"];

export type ChatBody = Schemas["ChatJob"];
export type ChatTicket = Schemas["ChatTicket"];

export type SpeechTaskBody = Schemas["SpeechTask"];
export type SpeechTicket = Schemas["SpeechTicket"];
export type Voice = Schemas["Voice"];

/** A graph, and the diagnostics of its analysis. */
export type GraphResult = Schemas["GraphResult"];
/** The state of a graph job, in the response to each poll. */
export type GraphEnvelope = Schemas["GraphJobBody"];

export type Lane = Schemas["Lane"];
export type UsageDay = Schemas["UsageItem"];

/** Why a job is waiting, its position in the queue, and when it should start and finish. */
export type Explanation = Schemas["ExplainedJob"];
/** A reason why a job is waiting. */
export type Blocker = Schemas["ExplainedBlocker"];
/** Recent statistics of an organisation's jobs, and the current backlog. */
export type Overview = Schemas["OverviewBody"];

/** A job of the organisation, from any product. `state` is one of the engine's states. */
export type OrgJob = Schemas["OrgJobItem"];
/** The same with its result, if it is short. */
export type WholeOrgJob = Schemas["OrgJobBody"];
export type OrgJobPage = Schemas["OrgJobPageBody"];
export type Timeline = Schemas["Timeline"];
export type TimelineItem = Schemas["TimelineItem"];
export type JobLogItem = Schemas["LogItem"];
export type JobLogPage = Schemas["LogPage"];
export type BulkAnswer = Schemas["BulkAnswer"];
