"""A platform onboards its customers, three endpoints each, sends their events and shows the
audit: with one key, and by its own ids, so that it can be run again.

    PACELINE_API_KEY=… python onboard.py URL [CUSTOMERS] [EVENTS]

50 customers and 10,000 events if nothing is said. It needs the client of Python; what
answers as the customers' endpoints is in receiver.py.
"""

import os
import sys
from urllib.parse import urljoin

from httpx import Response
from paceline_client import AuthenticatedClient
from paceline_client.api.destinations import put_destination
from paceline_client.api.events import post_events
from paceline_client.api.operations import show_compliance
from paceline_client.api.tenants import create_link, put_tenant
from paceline_client.models import *
from receiver import Receiver

url, count, number = sys.argv[1], *map(int, sys.argv[2:] + ["50", "10000"][len(sys.argv) - 2 :])
refuse = {"event_hooks": {"response": [Response.raise_for_status]}}
client = AuthenticatedClient(url, os.environ["PACELINE_API_KEY"], timeout=30, httpx_args=refuse)
SUBSCRIPTIONS = {"orders": ["order.paid"], "shipping": ["order.sent"], "all": ["*"]}
receiver, owed = Receiver(), 0
customers = [f"customer-{at}" for at in range(count)]

for customer in customers:
    put_tenant.sync(customer, client=client, body=CreateTenant(name=customer.title()))
    for name, types in SUBSCRIPTIONS.items():
        to = f"{receiver.url}/{customer}/{name}"
        endpoint = CreateDestination(url=to, event_types=types, limits=Limits(per_second=50))
        put_destination.sync(name, client=client, paceline_tenant=customer, body=endpoint)
print("onboarded", count, "customers with", 3 * count, "endpoints")

for at, customer in enumerate(customers):
    kinds = [(order, ["order.paid", "order.sent"][order % 2]) for order in range(at, number, count)]
    events = [PostEvent(type_=kind, payload={"order": order}) for order, kind in kinds]
    for start in range(0, len(events), 100):
        batch = PostEvents(events=events[start : start + 100])
        sent = post_events.sync(client=client, paceline_tenant=customer, body=batch)
        owed += sum(len(one.destinations) for one in sent.results)
print("sent", number, "events, which are", owed, "deliveries")
print("delivered", receiver.wait_for(owed))

reports = [show_compliance.sync(client=client, paceline_tenant=customer) for customer in customers]
kept = sum(one.compliant for report in reports for one in report.destinations)
print("audited:", kept, "endpoints were never sent faster than 50 a second")

rights = CreateLink(may_change=True, may_read_payloads=True)
link = create_link.sync(customers[0], client=client, body=rights).url
print(customers[0], "mends his endpoints for an hour at", urljoin(url, link))
