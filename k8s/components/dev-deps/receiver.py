"""Prints every webhook that arrives, and takes it. It verifies no signature: for that
see examples/receiver.py."""

import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # so that connections are kept open

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        print(f"{time.time():.3f}", self.headers["webhook-id"], body, flush=True)
        self.send_response(204)
        self.end_headers()

    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("", 8080), Receiver).serve_forever()
