"""The API: as the platform, or for a customer of it, by the key in PACELINE_API_KEY."""

import json
import os
import sys
import time
from urllib.error import HTTPError
from urllib.parse import urljoin
from urllib.request import ProxyHandler, Request, build_opener

# Not through a proxy: it is this machine's.
OPENER = build_opener(ProxyHandler({}))


class Api:
    def __init__(self, url):
        self.url = url

    def __call__(self, method, path, body=None, customer=None):
        """The answer, or an end with what the server says."""
        headers = {"Authorization": f"Bearer {os.environ['PACELINE_API_KEY']}"}
        headers |= {"Paceline-Tenant": customer} if customer else {}
        headers |= {"Content-Type": "application/json"} if body else {}
        text = json.dumps(body).encode() if body else None
        asked = Request(urljoin(self.url, path), text, headers, method=method)
        while True:
            try:
                return json.load(OPENER.open(asked, timeout=30))
            except HTTPError as refused:
                if refused.code != 429:
                    sys.exit(f"{method} {path}: {refused.read().decode()}")
                # It makes more changes than it may in a second.
                time.sleep(int(refused.headers.get("Retry-After", 1)))
