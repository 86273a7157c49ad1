// The program around a Node contender's client: reads requests, answers with figures.
// The same protocol as bench/client_host.py. Run as `node host.mjs ./NAME_client.mjs`.

import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

// A contender may print: only this program's answers may reach the pipe.
console.log = console.error;
console.info = console.error;

const { Client } = await import(new URL(process.argv[2], import.meta.url));
const client = new Client();

const secondsSince = (start) => Number(process.hrtime.bigint() - start) / 1e9;

async function enqueueConcurrently({ in_flight: inFlight, seconds }) {
  let number = 0;
  let jobs = 0;
  const start = process.hrtime.bigint();
  const submitter = async () => {
    while (secondsSince(start) < seconds) {
      await client.submit(number++);
      jobs++;
    }
  };
  await Promise.all(Array.from({ length: inFlight }, submitter));
  return { jobs, seconds: secondsSince(start) };
}

async function enqueueBulk({ jobs, seconds_max: secondsMax }) {
  let accepted = 0;
  const start = process.hrtime.bigint();
  while (accepted < jobs && secondsSince(start) < secondsMax) {
    const count = Math.min(client.bulkChunk, jobs - accepted);
    await client.submitChunk(accepted, count);
    accepted += count;
  }
  return { jobs: accepted, seconds: secondsSince(start) };
}

// Each call runs by itself on a fixed timetable: a slow one does not delay the next.
async function paced(call, { first, count, interval_seconds: interval }) {
  const times = [];
  const calls = [];
  const begin = process.hrtime.bigint();
  for (let index = 0; index < count; index++) {
    await sleep(Math.max(0, (index * interval - secondsSince(begin)) * 1000));
    calls.push(
      (async () => {
        const number = first + index;
        const begun = process.hrtime.bigint();
        await call(number);
        times.push([number, Number(begun), Number(process.hrtime.bigint())]);
      })(),
    );
  }
  await Promise.all(calls);
  return times;
}

const operations = {
  open: ({ address }) => client.open(address),
  install: () => client.install(),
  enqueue_concurrently: enqueueConcurrently,
  enqueue_bulk: enqueueBulk,
  unfinished: () => client.unfinished(),
  kept: () => client.kept(),
  paced_submits: (request) => paced((number) => client.submit(number), request),
  paced_waits: (request) =>
    paced(async (number) => client.wait(await client.submit(number)), request),
  close: () => client.close(),
};

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  let reply;
  try {
    reply = { ok: (await operations[request.op](request)) ?? null };
  } catch (error) {
    reply = { error: error.stack ?? String(error) };
  }
  process.stdout.write(JSON.stringify(reply) + "\n");
}
process.exit(0);
