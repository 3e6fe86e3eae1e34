"""The API by the names of its operations: an answer is what it says, what is refused is an
error, and a tenant is named once."""

import inspect
import pkgutil
from functools import cache, partial
from importlib import import_module

from . import AuthenticatedClient, api


class Refused(Exception):
    """What the API did not do, with what it says of it; `problem` is None if that is nothing."""

    def __init__(self, status, problem):
        self.status, self.problem = status, problem
        field = getattr(problem, "field", None)
        where = f"{field}: " if field else ""
        super().__init__(f"{int(status)}: {where}{getattr(problem, 'detail', 'no words')}")


class Paceline:
    """Has a method for each operation, with the arguments of its module in `api`:
    `Paceline(url, key).of("customer-42").post_event(body=PostEvent(...))`."""

    def __init__(self, url, key, tenant=None, timeout=30):
        self._client = AuthenticatedClient(url, key, timeout=timeout)
        self._tenant = tenant

    def of(self, tenant):
        """The same for one of the key's tenants, by its id or your own."""
        same = object.__new__(type(self))
        same._client, same._tenant = self._client, tenant
        return same

    def __getattr__(self, operation):
        try:
            module = _operations()[operation]
        except KeyError:
            raise AttributeError(f"the API has no operation {operation}") from None
        return partial(self._call, module.sync_detailed)

    def _call(self, operation, *path, **arguments):
        if self._tenant and "paceline_tenant" in inspect.signature(operation).parameters:
            arguments.setdefault("paceline_tenant", self._tenant)
        answer = operation(*path, client=self._client, **arguments)
        if answer.status_code >= 400:
            raise Refused(answer.status_code, answer.parsed)
        return answer.parsed


@cache
def _operations():
    found = pkgutil.walk_packages(api.__path__, f"{api.__name__}.")
    modules = (import_module(one.name) for one in found if not one.ispkg)
    return {module.__name__.rpartition(".")[2]: module for module in modules}
