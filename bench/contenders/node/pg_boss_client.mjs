import pg from "pg";
import { PgBoss } from "pg-boss";

import { payloadObject } from "./payload.mjs";
import { settings } from "./settings.mjs";

const QUEUE = "noop";

export class Client {
  bulkChunk = settings.bulkChunk;

  async open(address) {
    this.pool = new pg.Pool({ connectionString: address, max: 2 });
    this.boss = new PgBoss({
      connectionString: address,
      max: settings.clientConnections,
      supervise: false,
      schedule: false,
    });
    this.boss.on("error", (error) => console.error(error));
    await this.boss.start();
  }

  // `start()` has made the tables.
  async install() {
    await this.boss.createQueue(QUEUE, settings.queue);
  }

  async submit(number) {
    return this.boss.send(QUEUE, payloadObject(number));
  }

  async submitChunk(first, count) {
    await this.boss.insert(
      QUEUE,
      Array.from({ length: count }, (_, index) => ({ data: payloadObject(first + index) })),
    );
  }

  async unfinished() {
    return this.count("state < 'completed'");
  }

  async kept() {
    return {
      records: await this.count("state = 'completed'"),
      results: await this.count("state = 'completed' AND output IS NOT NULL"),
    };
  }

  async count(condition) {
    const { rows } = await this.pool.query(
      `SELECT count(*)::int FROM pgboss.job WHERE name = '${QUEUE}' AND ${condition}`,
    );
    return rows[0].count;
  }

  async close() {
    await this.boss.stop({ graceful: false });
    await this.pool.end();
  }
}
