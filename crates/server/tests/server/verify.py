"""Verifies captured requests: v1 by the official library, v1a by `cryptography`.

Reads {"secrets": [...], "public_keys": [...], "requests": [{"headers", "body"}]} from
standard input, bodies in base64. Every request has to verify by every key, and must not
once a byte is another. Prints how many checks were made.
"""

import base64
import json
import sys

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from standardwebhooks import Webhook, WebhookVerificationError


def v1(secret, headers, body):
    try:
        Webhook(secret).verify(body, headers)
        return True
    except WebhookVerificationError:
        return False
    except json.JSONDecodeError:
        return True  # it parses what it has verified; this body is no JSON


def v1a(public_key, headers, body):
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public_key.removeprefix("whpk_")))
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    for signature in headers["webhook-signature"].split(" "):
        version, _, encoded = signature.partition(",")
        if version == "v1a":
            try:
                key.verify(base64.b64decode(encoded), content)
                return True
            except InvalidSignature:
                pass
    return False


given = json.load(sys.stdin)
checks = 0
keys = [(v1, key) for key in given["secrets"]] + [(v1a, key) for key in given["public_keys"]]
for request in given["requests"]:
    headers, body = request["headers"], base64.b64decode(request["body"])
    other = body[:-1] + bytes([body[-1] ^ 1])
    for verifies, key in keys:
        assert verifies(key, headers, body), (verifies.__name__, headers)
        assert not verifies(key, headers, other), (verifies.__name__, "another body")
        for name, value in [("webhook-id", "another"), ("webhook-signature", "v1,AAAA")]:
            forged = {**headers, name: value}
            assert not verifies(key, forged, body), (verifies.__name__, name)
        checks += 1
print(checks)
