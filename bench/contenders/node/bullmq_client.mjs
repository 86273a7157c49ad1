import { Queue, QueueEvents } from "bullmq";
import { Redis } from "ioredis";

import { connectionOptions } from "./redis_address.mjs";
import { payloadObject } from "./payload.mjs";
import { settings } from "./settings.mjs";

const QUEUE = "noop";

export class Client {
  bulkChunk = settings.bulkChunk;

  async open(address) {
    this.connection = new Redis(connectionOptions(address));
    this.queue = new Queue(QUEUE, { connection: this.connection });
    this.events = new QueueEvents(QUEUE, { connection: new Redis(connectionOptions(address)) });
    await this.queue.waitUntilReady();
    await this.events.waitUntilReady();
  }

  // Redis needs no tables.
  async install() {}

  async submit(number) {
    return this.queue.add("noop", payloadObject(number));
  }

  async submitChunk(first, count) {
    await this.queue.addBulk(
      Array.from({ length: count }, (_, index) => ({
        name: "noop",
        data: payloadObject(first + index),
      })),
    );
  }

  async wait(job) {
    await job.waitUntilFinished(this.events, 30_000);
  }

  async unfinished() {
    return this.queue.getJobCountByTypes("waiting", "active", "delayed", "prioritized");
  }

  // Results are fields of the job's own hash: the newest hundred stand for all.
  async kept() {
    const records = await this.queue.getCompletedCount();
    const sample = await this.queue.getCompleted(0, 99);
    const withResult = sample.filter((job) => job.returnvalue !== null).length;
    return { records, results: withResult === sample.length ? records : withResult };
  }

  async close() {
    await this.events.close();
    await this.queue.close();
    this.connection.disconnect();
  }
}
