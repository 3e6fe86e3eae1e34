#!/usr/bin/env python3
"""A receiver of webhooks that verifies their signatures, by the standard library alone.

    python3 examples/receiver.py SECRET [PORT]

SECRET is the destination's, `whsec_...`. Listens on 127.0.0.1, port 9000 unless told
otherwise. Prints what is genuine, and answers 401 to what is not.
"""

import base64
import hashlib
import hmac
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = base64.b64decode(sys.argv[1].removeprefix("whsec_"))
PORT = int(sys.argv[2]) if len(sys.argv) > 2 else 9000
TOLERANCE_SECONDS = 300


def is_genuine(headers, body):
    """Whether one of the signatures is ours, and the request is of now."""
    id, timestamp = headers["webhook-id"], headers["webhook-timestamp"]
    signatures = headers["webhook-signature"]
    if not (id and timestamp and signatures and timestamp.isdecimal()):
        return False
    if abs(time.time() - int(timestamp)) > TOLERANCE_SECONDS:
        return False
    content = f"{id}.{timestamp}.".encode() + body
    expected = base64.b64encode(hmac.digest(SECRET, content, hashlib.sha256)).decode()
    # One signature for each secret in force: while a secret is rotated, two.
    return any(
        hmac.compare_digest(signature, f"v1,{expected}") for signature in signatures.split(" ")
    )


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        genuine = is_genuine(self.headers, body)
        print(self.headers["webhook-id"], "verified" if genuine else "FORGED", body, flush=True)
        self.send_response(204 if genuine else 401)
        self.end_headers()

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", PORT), Receiver).serve_forever()
