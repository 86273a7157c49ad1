import { makeWorkerUtils } from "graphile-worker";
import pg from "pg";

import { payloadObject } from "./payload.mjs";
import { settings } from "./settings.mjs";

const TASK = "noop";

export class Client {
  bulkChunk = settings.bulkChunk;

  async open(address) {
    this.pool = new pg.Pool({ connectionString: address, max: settings.clientConnections });
    this.utils = await makeWorkerUtils({ pgPool: this.pool });
  }

  async install() {
    await this.utils.migrate();
  }

  async submit(number) {
    return this.utils.addJob(TASK, payloadObject(number));
  }

  // The SQL form of its bulk API: it returns a count where the JavaScript form returns every row.
  async submitChunk(first, count) {
    const specs = Array.from({ length: count }, (_, index) => ({
      identifier: TASK,
      payload: payloadObject(first + index),
    }));
    await this.pool.query(
      `SELECT count(*) FROM graphile_worker.add_jobs(ARRAY(
         SELECT json_populate_recordset(NULL::graphile_worker.job_spec, $1::json)))`,
      [JSON.stringify(specs)],
    );
  }

  async unfinished() {
    const { rows } = await this.pool.query("SELECT count(*)::int FROM graphile_worker.jobs");
    return rows[0].count;
  }

  // A finished job's row is deleted: what is left is what was kept.
  async kept() {
    return { records: await this.unfinished(), results: 0 };
  }

  async close() {
    await this.utils.release();
    await this.pool.end();
  }
}
