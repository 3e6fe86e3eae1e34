// The side of the queue that an application has: adds jobs, holds them, lets them go.

import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import { answer } from './orders.mjs';

const { redis, prefix } = JSON.parse(process.argv[2]);
const queue = new Queue('webhooks', {
  connection: new Redis(redis, { maxRetriesPerRequest: null }),
  prefix,
  // What a sender of webhooks needs: a receiver that fails is asked again.
  defaultJobOptions: { attempts: 8, backoff: { type: 'exponential', delay: 5_000 } },
});
await queue.waitUntilReady();

/** JSON of so many bytes, with what the receiver notes at its beginning. */
function payload(event, sentUs, bytes) {
  const begin = `{"event":${event},"sent_us":${sentUs},"padding":"`;
  const end = '"}';
  return begin + 'x'.repeat(Math.max(0, bytes - begin.length - end.length)) + end;
}

function job({ url, first, sent_us: sentUs, bytes }, number) {
  const event = first + number;
  const data = { url, id: `msg_${event}`, payload: payload(event, sentUs, bytes) };
  return { name: 'deliver', data };
}

const orders = {
  async hold() {
    await queue.pause();
    return {};
  },
  async go() {
    await queue.resume();
    return {};
  },
  async add(order) {
    await queue.addBulk(Array.from({ length: order.count }, (_, number) => job(order, number)));
    return {};
  },
  async left() {
    const { failed, ...others } = await queue.getJobCounts('wait', 'active', 'delayed', 'failed');
    return { failed, left: Object.values(others).reduce((sum, count) => sum + count, 0) };
  },
};

await answer((order) => orders[order.order](order));
