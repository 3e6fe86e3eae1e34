// The same as verify.py: v1 by the official library, v1a by node's own crypto.

import assert from "node:assert";
import { createPublicKey, verify } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(`${process.argv[2]}/node_modules/`);
const { Webhook, WebhookVerificationError } = require("standardwebhooks");

function v1(secret, headers, body) {
  try {
    new Webhook(secret).verify(body, headers);
    return true;
  } catch (error) {
    if (error instanceof SyntaxError) return true; // it parses what it has verified
    assert(error instanceof WebhookVerificationError, error);
    return false;
  }
}

// The fixed beginning of an ed25519 public key in DER.
const DER = Buffer.from("302a300506032b6570032100", "hex");

function v1a(publicKey, headers, body) {
  const raw = Buffer.from(publicKey.replace("whpk_", ""), "base64");
  const key = createPublicKey({ key: Buffer.concat([DER, raw]), format: "der", type: "spki" });
  const prefix = `${headers["webhook-id"]}.${headers["webhook-timestamp"]}.`;
  const content = Buffer.concat([Buffer.from(prefix), body]);
  return headers["webhook-signature"]
    .split(" ")
    .filter((signature) => signature.startsWith("v1a,"))
    .some((signature) => verify(null, content, key, Buffer.from(signature.slice(4), "base64")));
}

const given = JSON.parse(readFileSync(0));
const keys = [
  ...given.secrets.map((key) => [v1, key]),
  ...given.public_keys.map((key) => [v1a, key]),
];
let checks = 0;
for (const request of given.requests) {
  const { headers } = request;
  const body = Buffer.from(request.body, "base64");
  const other = Buffer.from(body);
  other[other.length - 1] ^= 1;
  for (const [verifies, key] of keys) {
    assert(verifies(key, headers, body), `${verifies.name}: ${JSON.stringify(headers)}`);
    assert(!verifies(key, headers, other), `${verifies.name}: another body`);
    for (const [name, value] of [["webhook-id", "another"], ["webhook-signature", "v1,AAAA"]]) {
      assert(!verifies(key, { ...headers, [name]: value }, body), `${verifies.name}: ${name}`);
    }
    checks += 1;
  }
}
console.log(checks);
