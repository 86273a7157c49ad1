/** What the server answers, by names that a program can say. All of it is made from the OpenAPI document. */

import type { components } from "./generated/openapi.js";

type Schemas = components["schemas"];

/** A job of a service, as its own surface shows it. */
export type JobBody = Schemas["coatcheck.surfaces.gateway.words.Job"];
/** What a submission is answered with. */
export type Ticket = Schemas["coatcheck.surfaces.gateway.words.Ticket"];
export type JobPage = Schemas["coatcheck.surfaces.gateway.words.JobPage"];
export type Progress = Schemas["coatcheck.surfaces.gateway.words.Progress"];
export type JobArtifact = Schemas["JobArtifact"];

export type BatchBody = Schemas["BatchJob"];
export type BatchRun = Schemas["BatchRun"];
export type BatchTask = Schemas["BatchTask"];
/** A task with its input and its files. */
export type WholeBatchTask = Schemas["WholeTask"];
export type BatchBadLine = Schemas["BadLineItem"];
export type BatchExport = Schemas["Export"];
export type TaskCounts = Schemas["TaskCounts"];
export type Upload = Schemas["Upload"];

export type ChatBody = Schemas["coatcheck.surfaces.llm.words.Job"];
export type ChatTicket = Schemas["coatcheck.surfaces.llm.words.Ticket"];

export type SpeechTaskBody = Schemas["SpeechTask"];
export type SpeechTicket = Schemas["SpeechTicket"];
export type Voice = Schemas["Voice"];

/** A graph, and what was found while it was made. */
export type GraphResult = Schemas["GraphResult"];
/** How a graph's job is, in the answer to each poll. */
export type GraphEnvelope = Schemas["Envelope"];

export type Lane = Schemas["Lane"];
export type UsageDay = Schemas["UsageDay"];

/** What a job waits for, its place in the line, and when it should begin and end. */
export type Explanation = Schemas["ExplainedJob"];
/** Why a job is not further than it is. */
export type Blocker = Schemas["ExplainedBlocker"];
/** What an organisation's jobs did lately, and what waits. */
export type Overview = Schemas["OverviewBody"];

/** A job of the organisation's, whichever surface it was handed in on. `state` is the engine's word. */
export type OrgJob = Schemas["OrgJob"];
/** The same with its result, if that is short. */
export type WholeOrgJob = Schemas["WholeOrgJob"];
export type OrgJobPage = Schemas["OrgJobPage"];
export type Timeline = Schemas["Timeline"];
export type TimelineItem = Schemas["TimelineItem"];
export type JobLogItem = Schemas["LogItem"];
export type JobLogPage = Schemas["LogPage"];
export type BulkAnswer = Schemas["BulkAnswer"];
