// A worker that delivers jobs as webhooks: signed, over kept connections, with a time-out.

import { randomBytes } from 'node:crypto';
import { Worker } from 'bullmq';
import { Redis } from 'ioredis';
import { Pool } from 'undici';
import { answer } from './orders.mjs';
import { signature } from './signature.mjs';

const TIMEOUT_MS = 15_000;

const { redis, prefix, concurrency, limiter } = JSON.parse(process.argv[2]);

/** The value of a key, made the first time. */
function kept(make) {
  const values = new Map();
  return (key) => {
    let value = values.get(key);
    if (value === undefined) {
      value = make(key);
      values.set(key, value);
    }
    return value;
  };
}

// Each destination has a secret of its own.
const secretOf = kept(() => randomBytes(32));
const poolOf = kept(
  (origin) =>
    new Pool(origin, {
      connections: concurrency,
      pipelining: 1,
      headersTimeout: TIMEOUT_MS,
      bodyTimeout: TIMEOUT_MS,
      connect: { timeout: TIMEOUT_MS },
    }),
);

async function deliver({ data: { url, id, payload } }) {
  const { origin, pathname } = new URL(url);
  const timestamp = Math.floor(Date.now() / 1_000);
  const { statusCode, body } = await poolOf(origin).request({
    method: 'POST',
    path: pathname,
    headers: {
      'content-type': 'application/json',
      'user-agent': 'versus',
      'webhook-id': id,
      'webhook-timestamp': String(timestamp),
      'webhook-signature': signature(secretOf(url), { id, timestamp, payload }),
    },
    body: payload,
  });
  await body.dump();
  if (statusCode < 200 || statusCode > 299) throw new Error(`it answered ${statusCode}`);
}

const worker = new Worker('webhooks', deliver, {
  connection: new Redis(redis, { maxRetriesPerRequest: null }),
  prefix,
  concurrency,
  // What is done is forgotten at once, which is the fastest.
  removeOnComplete: { count: 0 },
  ...(limiter && { limiter }),
});
worker.on('error', (error) => console.error(`versus: a worker: ${error.message}`));
worker.once('failed', (job, error) => console.error(`versus: a delivery failed: ${error.message}`));
await worker.waitUntilReady();

await answer(() => ({}));
