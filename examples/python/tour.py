"""A tour of the API by a generated client, with a receiver that verifies signatures.

    python tour.py URL

URL is a running Paceline's. The key is in PACELINE_API_KEY; if it is a platform's, the
tenant that it acts for is in PACELINE_TENANT. examples/README.md says how the client is
generated.
"""

import os
import queue
import sys
import threading
import time
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer

from paceline_client import AuthenticatedClient
from paceline_client.api.destinations import create_destination
from paceline_client.api.operations import show_compliance
from paceline_client.models import (
    ChangeDestination,
    CreateDestination,
    Limits,
    LimitsPatch,
    PostEvent,
    Problem,
)
from paceline_client.plain import Paceline
from standardwebhooks import Webhook

PATIENCE_SECONDS = 30

arrived = queue.Queue()


class Receiver(BaseHTTPRequestHandler):
    """Hands on what arrives; verifying needs the secret, which comes later."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        arrived.put((dict(self.headers), body))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


def good(answer):
    """An answer, unless it is a problem."""
    if answer is None or isinstance(answer, Problem):
        sys.exit(f"refused: {answer}")
    return answer


client = AuthenticatedClient(
    base_url=sys.argv[1],
    token=os.environ["PACELINE_API_KEY"],
    headers={"Paceline-Tenant": tenant} if (tenant := os.environ.get("PACELINE_TENANT")) else {},
    raise_on_unexpected_status=True,
)
# The same in short: an operation is a method, and what is refused is an error.
paceline = Paceline(sys.argv[1], os.environ["PACELINE_API_KEY"])
paceline = paceline.of(tenant) if tenant else paceline
server = HTTPServer(("127.0.0.1", 0), Receiver)
threading.Thread(target=server.serve_forever, daemon=True).start()

wanted = CreateDestination(
    url=f"http://127.0.0.1:{server.server_port}/hooks", name="python", limits=Limits(per_second=5)
)
destination = good(create_destination.sync(client=client, body=wanted))
print("created", destination.id, "with", destination.limits.per_second, "a second")

event = PostEvent(
    destination_id=destination.id, type_="order.paid", payload={"order": 42, "total": "19.90"}
)
accepted = paceline.post_event(body=event)
print("sent", accepted.id)

headers, body = arrived.get(timeout=PATIENCE_SECONDS)
payload = Webhook(destination.secret.secret).verify(body, headers)
assert payload == event.payload, payload
try:
    Webhook(destination.secret.secret).verify(body + b" ", headers)
    sys.exit("a forged payload was verified")
except Exception as refused:
    print("verified", payload, "and refused another:", refused)

change = ChangeDestination(limits=LimitsPatch(per_second=50))
changed = paceline.change_destination(destination.id, body=change)
assert changed.limits.per_second == 50, changed
print("changed to", changed.limits.per_second, "a second")



def audit():
    now = datetime.now(timezone.utc)
    return good(
        show_compliance.sync(
            client=client,
            destination_id=destination.id,
            since=now - timedelta(minutes=5),
            until=now + timedelta(minutes=1),
        )
    )


# What has just started is judged half a second later.
report = audit()
for _ in range(100):
    if report.destinations[0].starts > 0:
        break
    time.sleep(0.1)
    report = audit()
[audited] = report.destinations
assert report.compliant and audited.starts == 1, audited
print("audited:", audited.starts, "start, limit in force", audited.limit_in_force)
server.shutdown()
