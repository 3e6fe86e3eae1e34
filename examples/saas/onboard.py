"""A platform onboards its customers, three endpoints each, and sends their events: with
one key, and by its own ids. Python's standard library is enough.

    PACELINE_API_KEY=… python onboard.py URL [CUSTOMERS] [EVENTS]

50 customers and 10,000 events if nothing is said. Run again, it finds all of them. At the
end the first customer gets a link to pages of his own.
"""

import json
import os
import sys
import threading
import time
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

URL = sys.argv[1]
CUSTOMERS, EVENTS = (int(word) for word in (sys.argv[2:] + ["50", "10000"][len(sys.argv) - 2 :]))
SUBSCRIPTIONS = {"orders": ["order.paid"], "shipping": ["order.sent"], "all": ["*"]}
arrived = []


class Receiver(BaseHTTPRequestHandler):
    """All endpoints of all customers; an event's id comes once for each of them."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        arrived.append((self.path, self.headers["webhook-id"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


def call(method, path, body=None, customer=None):
    headers = {
        "authorization": f"Bearer {os.environ['PACELINE_API_KEY']}",
        "content-type": "application/json",
    }
    if customer:
        headers["paceline-tenant"] = customer
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(URL + path, data, headers, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


receiver = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
threading.Thread(target=receiver.serve_forever, daemon=True).start()
customers = [f"customer-{number}" for number in range(CUSTOMERS)]

for customer in customers:
    call("PUT", f"/v1/tenants/{customer}", {"name": customer.title(), "tier": "standard"})
    for name, types in SUBSCRIPTIONS.items():
        url = f"http://127.0.0.1:{receiver.server_port}/{customer}/{name}"
        endpoint = {"url": url, "event_types": types, "limits": {"per_second": 50}}
        call("PUT", f"/v1/destinations/{name}", endpoint, customer)
print("onboarded", CUSTOMERS, "customers with", CUSTOMERS * len(SUBSCRIPTIONS), "endpoints")

owed = 0
for start in range(0, EVENTS, 100 * CUSTOMERS):
    for at, customer in enumerate(customers):
        numbers = range(start + at, min(EVENTS, start + 100 * CUSTOMERS), CUSTOMERS)
        kinds = [(number, ("order.paid", "order.sent")[number % 2]) for number in numbers]
        events = [{"type": kind, "payload": {"order": number}} for number, kind in kinds]
        if events:
            sent = call("POST", "/v1/events/batch", {"events": events}, customer)["results"]
            owed += sum(len(one["destinations"]) for one in sent)
print("sent", EVENTS, "events, which are", owed, "deliveries")

while len(set(arrived)) < owed:
    time.sleep(0.1)
print("delivered", len(set(arrived)))

# The audit judges up to half a second ago.
time.sleep(1)
reports = [call("GET", "/v1/compliance", customer=customer) for customer in customers]
kept = sum(one["compliant"] for report in reports for one in report["destinations"])
print("audited:", kept, "endpoints were never sent faster than 50 a second")

link = call(
    "POST",
    f"/v1/tenants/{customers[0]}/links",
    {"may_change": True, "may_read_payloads": True, "expires_in_seconds": 3600},
)["url"]
# It is whole where the server has a public URL.
print(customers[0], "mends his endpoints for an hour at", urllib.parse.urljoin(URL, link))
