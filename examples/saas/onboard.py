"""A platform onboards its customers, three endpoints each, sends their events and shows the
audit: with one key, and by its own ids, so that it can be run again.

    PACELINE_API_KEY=… python3 onboard.py URL [CUSTOMERS EVENTS]

50 customers and 10,000 events if nothing is said, and 1,000 events of a customer at most. It
ends with 1 where the audit says that an endpoint was sent to faster than its limit. It needs
Python 3 and nothing else. The API's requests are in api.py, and what answers as the
customers' endpoints is in receiver.py.
"""

import sys
from urllib.parse import urljoin

from api import Api
from receiver import Receiver

url, count, number = sys.argv[1], *map(int, sys.argv[2:] or [50, 10_000])
SUBSCRIPTIONS = {"orders": ["order.paid"], "shipping": ["order.sent"], "all": ["*"]}
api, receiver, owed = Api(url), Receiver(), 0
customers = [f"customer-{at}" for at in range(count)]

for customer in customers:
    api("PUT", f"/v1/tenants/{customer}", {"name": customer.title()})
    for name, types in SUBSCRIPTIONS.items():
        to = f"{receiver.url}/{customer}/{name}"
        endpoint = {"url": to, "event_types": types, "limits": {"per_second": 50}}
        api("PUT", f"/v1/destinations/{name}", endpoint, customer)
print("onboarded", count, "customers with", 3 * count, "endpoints")

for at, customer in enumerate(customers):
    kinds = [(order, ["order.paid", "order.sent"][order % 2]) for order in range(at, number, count)]
    events = [{"type": kind, "payload": {"order": order}} for order, kind in kinds]
    sent = api("POST", "/v1/events/batch", {"events": events}, customer)
    owed += sum(len(one["destinations"]) for one in sent["results"])
print("sent", number, "events, which are", owed, "deliveries")
print("delivered", receiver.wait_for(owed))

reports = [api("GET", "/v1/compliance", customer=customer) for customer in customers]
kept = sum(one["compliant"] for report in reports for one in report["destinations"])
print("audited:", kept, "endpoints were never sent faster than 50 a second")
if kept != 3 * count:
    sys.exit(f"{3 * count - kept} endpoints were")

link = {"may_change": True, "may_read_payloads": True}
link = api("POST", f"/v1/tenants/{customers[0]}/links", link)
print(customers[0], "mends his endpoints for an hour at", urljoin(url, link["url"]))
