// A tour of the API by a generated client, with a receiver that verifies signatures.
//
//     node tour.js URL
//
// URL is a running Paceline's. The key is in PACELINE_API_KEY; if it is a platform's, the
// tenant that it acts for is in PACELINE_TENANT. examples/README.md says how the client is
// generated, and how this is compiled.

import assert from "node:assert/strict";
import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import { createClient, Webhook } from "paceline-client";

interface Arrival {
  headers: IncomingHttpHeaders;
  body: string;
}

const PATIENCE_MS = 30_000;

const [url] = process.argv.slice(2);
const client = createClient({
  url: url ?? "http://127.0.0.1:8080",
  key: process.env.PACELINE_API_KEY ?? "",
  tenant: process.env.PACELINE_TENANT,
});

// Hands on the first that arrives: verifying needs the secret, which comes later.
let arrive: (arrival: Arrival) => void;
const arrival = new Promise<Arrival>((resolve) => (arrive = resolve));
const server = createServer(async (request, response) => {
  let body = "";
  for await (const part of request.setEncoding("utf8")) body += part;
  response.writeHead(204).end();
  arrive({ headers: request.headers, body });
});
await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
const { port } = server.address() as AddressInfo;
const late = setTimeout(() => assert.fail("nothing arrived"), PATIENCE_MS);

/** What was answered, unless it is a problem. */
function good<T>({ data, error }: { data?: T; error?: unknown }): T {
  if (data === undefined) throw new Error(`refused: ${JSON.stringify(error)}`);
  return data;
}

const destination = good(
  await client.POST("/v1/destinations", {
    body: {
      url: `http://127.0.0.1:${port}/hooks`,
      name: "typescript",
      limits: { per_second: 5 },
    },
  }),
);
console.log("created", destination.id, "with", destination.limits.per_second, "a second");

const payload = { order: 42, total: "19.90" };
const accepted = good(
  await client.POST("/v1/events", {
    body: { destination_id: destination.id, type: "order.paid", payload },
  }),
);
console.log("sent", accepted.id);

const { headers, body } = await arrival;
const { secret } = destination.secret;
assert(secret);
const webhook = new Webhook(secret);
const signed = {
  "webhook-id": String(headers["webhook-id"]),
  "webhook-timestamp": String(headers["webhook-timestamp"]),
  "webhook-signature": String(headers["webhook-signature"]),
};
assert.deepEqual(webhook.verify(body, signed), payload);
assert.throws(() => webhook.verify(`${body} `, signed));
console.log("verified", body, "and refused another");

const changed = good(
  await client.PATCH("/v1/destinations/{id}", {
    params: { path: { id: destination.id } },
    body: { limits: { per_second: 50 } },
  }),
);
assert.equal(changed.limits.per_second, 50);
console.log("changed to", changed.limits.per_second, "a second");

const MINUTE_MS = 60_000;
const audit = async () =>
  good(
    await client.GET("/v1/compliance", {
      params: {
        query: {
          destination_id: destination.id,
          since: new Date(Date.now() - 5 * MINUTE_MS).toISOString(),
          until: new Date(Date.now() + MINUTE_MS).toISOString(),
        },
      },
    }),
  );
// What has just started is judged half a second later.
let report = await audit();
for (let asked = 0; asked < 100 && report.destinations[0]?.starts === 0; asked += 1) {
  await new Promise((resolve) => setTimeout(resolve, 100));
  report = await audit();
}
const [audited] = report.destinations;
assert(report.compliant && audited?.starts === 1, JSON.stringify(report));
console.log("audited:", audited.starts, "start, limit in force", audited.limit_in_force);

clearTimeout(late);
server.close();
