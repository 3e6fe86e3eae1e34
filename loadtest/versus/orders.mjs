// How `loadtest versus` speaks to its peer: a line of JSON in, a line of JSON out. The
// process ends when its input does, however the load test ended.

import { createInterface } from 'node:readline';

export function say(what) {
  process.stdout.write(`${JSON.stringify(what)}\n`);
}

/** Says that it is ready, and answers each order with what `perform` returns. */
export async function answer(perform) {
  say({ ready: true });
  for await (const line of createInterface({ input: process.stdin })) {
    say(await perform(JSON.parse(line)));
  }
  process.exit(0);
}
