// What a receiver verifies a webhook by, as Standard Webhooks say.

import { createHmac } from 'node:crypto';

/** The value of `webhook-signature`, from the key's bytes. */
export function signature(key, { id, timestamp, payload }) {
  const signed = createHmac('sha256', key).update(`${id}.${timestamp}.${payload}`);
  return `v1,${signed.digest('base64')}`;
}
