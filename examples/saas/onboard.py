"""A platform onboards its customers, three endpoints each, sends their events and shows the
audit: with one key, and by its own ids, so that it can be run again.

    PACELINE_API_KEY=… python onboard.py URL [CUSTOMERS EVENTS]

50 customers and 10,000 events if nothing is said, and 1,000 events of a customer at most. It
needs the client of Python; what answers as the customers' endpoints is in receiver.py.
"""

import os
import sys
from urllib.parse import urljoin

from paceline_client.models import *
from paceline_client.plain import Paceline
from receiver import Receiver

url, count, number = sys.argv[1], *map(int, sys.argv[2:] or [50, 10_000])
SUBSCRIPTIONS = {"orders": ["order.paid"], "shipping": ["order.sent"], "all": ["*"]}
paceline, receiver, owed = Paceline(url, os.environ["PACELINE_API_KEY"]), Receiver(), 0
customers = [f"customer-{at}" for at in range(count)]

for customer in customers:
    paceline.put_tenant(customer, body=CreateTenant(name=customer.title()))
    for name, types in SUBSCRIPTIONS.items():
        to = f"{receiver.url}/{customer}/{name}"
        endpoint = CreateDestination(url=to, event_types=types, limits=Limits(per_second=50))
        paceline.of(customer).put_destination(name, body=endpoint)
print("onboarded", count, "customers with", 3 * count, "endpoints")

for at, customer in enumerate(customers):
    kinds = [(order, ["order.paid", "order.sent"][order % 2]) for order in range(at, number, count)]
    events = [PostEvent(type_=kind, payload={"order": order}) for order, kind in kinds]
    sent = paceline.of(customer).post_events(body=PostEvents(events=events))
    owed += sum(len(one.destinations) for one in sent.results)
print("sent", number, "events, which are", owed, "deliveries")
print("delivered", receiver.wait_for(owed))

reports = [paceline.of(customer).show_compliance() for customer in customers]
kept = sum(one.compliant for report in reports for one in report.destinations)
print("audited:", kept, "endpoints were never sent faster than 50 a second")

link = paceline.create_link(customers[0], body=CreateLink(may_change=True, may_read_payloads=True))
print(customers[0], "mends his endpoints for an hour at", urljoin(url, link.url))
