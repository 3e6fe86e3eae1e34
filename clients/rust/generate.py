"""Writes src/api.rs from the description of the API.

    python generate.py openapi.json src/api.rs

A type for each schema and a method for each operation. It knows the forms that the
description has, and ends with an error that names the place at any other: so a client
never lacks a field in silence. Needs Python 3.11 and nothing else.
"""

import json
import re
import sys

METHODS = ("get", "post", "put", "patch", "delete")
JSON, LINES, TEXT = "application/json", "application/x-ndjson", "text/plain"
# Said once, by the client that acts for a tenant.
CLIENTS_OWN = {"Paceline-Tenant"}
RESERVED = {"type", "match", "move", "ref", "use", "where", "in", "for", "as", "static"}


class Unknown(Exception):
    """A form that this program does not know."""


def pascal(text):
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[^A-Za-z0-9]+", text))


def snake(text):
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def field_name(name):
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise Unknown(f"a field called {name}")
    return f"r#{name}" if name in RESERVED else name


def documented(text, indent, otherwise):
    """As a comment. What is in angle brackets is no HTML of ours."""
    lines = (text or otherwise).strip().replace("<", "\\<").splitlines()
    return [f"{indent}/// {line.strip()}".rstrip() for line in lines]


def reference(schema):
    return schema["$ref"].removeprefix("#/components/schemas/")


class Types:
    """The Rust types of all schemas, and of what stands inside of them."""

    def __init__(self, document):
        self.schemas = document["components"]["schemas"]
        asked, answered = self.reached(document)
        # Where an absent field stays and a null clears: only of what is sent by PATCH.
        self.changes = asked["patch"] - answered
        self.sent = asked["patch"] | asked["other"]
        self.written = {}

    def reached(self, document):
        asked = {"patch": set(), "other": set()}
        answered = set()
        for path in document["paths"].values():
            for method, operation in path.items():
                bodies = operation.get("requestBody", {}).get("content", {})
                kind = "patch" if method == "patch" else "other"
                for body in bodies.values():
                    self.reach(body["schema"], asked[kind])
                for answer in operation["responses"].values():
                    for body in answer.get("content", {}).values():
                        self.reach(body["schema"], answered)
        return asked, answered

    def reach(self, part, found):
        if isinstance(part, list):
            for one in part:
                self.reach(one, found)
        elif isinstance(part, dict):
            if isinstance(part.get("$ref"), str):
                name = reference(part)
                if name not in found:
                    found.add(name)
                    self.reach(self.schemas[name], found)
            for one in part.values():
                self.reach(one, found)

    def write(self, name, lines):
        if self.written.setdefault(name, lines) != lines:
            raise Unknown(f"two types called {name}")
        return name

    def rust(self, schema, place):
        """`(type, nullable)` of what stands at a place, and writes what it needs."""
        if "$ref" in schema:
            return reference(schema), False
        if "oneOf" in schema:
            others = [one for one in schema["oneOf"] if one.get("type") != "null"]
            if len(others) == 1 and len(schema["oneOf"]) == 2:
                return self.rust(others[0], place)[0], True
            raise Unknown(f"{place}: one of several")
        kinds = schema.get("type", "any")
        kinds = kinds if isinstance(kinds, list) else [kinds]
        nullable = "null" in kinds
        kinds = [kind for kind in kinds if kind != "null"]
        if len(kinds) != 1:
            raise Unknown(f"{place}: several types")
        return self.plain(kinds[0], schema, place), nullable

    def plain(self, kind, schema, place):
        if "enum" in schema:
            return self.choice(place, schema)
        if kind == "array":
            return f"Vec<{self.rust(schema['items'], place)[0]}>"
        if kind == "object" and "properties" in schema:
            return self.structure(place, schema)
        if kind == "object":
            values = schema.get("additionalProperties")
            if isinstance(values, dict):
                return f"BTreeMap<String, {self.rust(values, place)[0]}>"
            return "Map<String, Value>"
        if kind == "integer":
            bits = {"int32": "32", "int64": "64"}[schema["format"]]
            return ("u" if schema.get("minimum", -1) >= 0 else "i") + bits
        simple = {"string": "String", "boolean": "bool", "number": "f64", "any": "Value"}
        if kind not in simple:
            raise Unknown(f"{place}: a {kind}")
        return simple[kind]

    def choice(self, name, schema):
        values = [value for value in schema["enum"] if value is not None]
        lines = documented(schema.get("description"), "", "One of a few words.")
        lines += ["#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]"]
        lines += ["#[non_exhaustive]", f"pub enum {name} {{"]
        for value in values:
            lines += [f"    /// `{value}`", f'    #[serde(rename = "{value}")]']
            lines += [f"    {pascal(value)},"]
        lines += ["    /// A word that this version of the client does not know."]
        lines += ["    #[serde(untagged)]", "    Other(String),", "}", ""]
        return self.write(name, lines)

    def structure(self, name, schema, flattened=None):
        required = set(schema.get("required", []))
        fields, needed = [], []
        if flattened:
            kind, description = flattened
            # Of a secret that was added one field is the secret's text.
            itself = "_itself" if snake_of(kind) in schema["properties"] else ""
            field = snake_of(kind) + itself
            fields += documented(description, "    ", "All else.")
            fields += ["    #[serde(flatten)]", f"    pub {field}: {kind},"]
            needed.append((field, kind))
        for key, inner in schema["properties"].items():
            kind, nullable = self.rust(inner, name + pascal(key))
            fields += documented(inner.get("description"), "    ", f"`{key}`.")
            if key in required and not nullable:
                needed.append((field_name(key), kind))
            elif nullable and key not in required and name in self.changes:
                fields += ['    #[serde(default, skip_serializing_if = "Change::is_keep")]']
                kind = f"Change<{kind}>"
            else:
                fields += ['    #[serde(default, skip_serializing_if = "Option::is_none")]']
                kind = f"Option<{kind}>"
            fields += [f"    pub {field_name(key)}: {kind},"]
        lines = documented(schema.get("description"), "", f"`{name}`.")
        default = "" if needed else "Default, "
        lines += [f"#[derive(Debug, Clone, PartialEq, {default}Serialize, Deserialize)]"]
        lines += ["#[non_exhaustive]", f"pub struct {name} {{", *fields, "}", ""]
        if needed and name in self.sent:
            lines += self.constructor(name, needed, schema)
        return self.write(name, lines)

    def constructor(self, name, needed, schema):
        rest = [field_name(key) for key in schema["properties"]]
        rest = [key for key in rest if key not in dict(needed)]
        into = lambda kind: "impl Into<String>" if kind == "String" else kind
        arguments = ", ".join(f"{key}: {into(kind)}" for key, kind in needed)
        lines = [f"impl {name} {{", "    /// With what it cannot be without.", "    #[must_use]"]
        lines += [f"    pub fn new({arguments}) -> Self {{", "        Self {"]
        for key, kind in needed:
            lines += [f"            {key}: {key}.into()," if kind == "String" else f"            {key},"]
        lines += [f"            {key}: Default::default()," for key in rest]
        return lines + ["        }", "    }", "}", ""]

    def named(self, name):
        """The type of one of the description's own schemas."""
        schema = self.schemas[name]
        if "allOf" in schema:
            base, more = schema["allOf"]
            whole = {**more, "description": schema.get("description")}
            return self.structure(name, whole, (reference(base), base.get("description")))
        if "oneOf" in schema:
            return self.variants(name, schema)
        if schema.get("type") == "object" and "properties" in schema:
            return self.structure(name, schema)
        kind, nullable = self.rust(schema, name)
        if nullable:
            raise Unknown(f"{name}: null")
        if kind != name:
            alias = documented(schema.get("description"), "", f"`{name}`.")
            self.write(name, [*alias, f"pub type {name} = {kind};", ""])
        return name

    def variants(self, name, schema):
        """One of several objects. The first whose required fields are there."""
        lines = documented(schema.get("description"), "", f"`{name}`.")
        lines += ["#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]"]
        lines += ["#[serde(untagged)]", "#[non_exhaustive]", f"pub enum {name} {{"]
        for one in schema["oneOf"]:
            if "$ref" in one:
                kind = variant = reference(one)
            else:
                [field] = one["required"]
                variant = pascal(field)
                kind = self.structure(name + variant, one)
            lines += documented(one.get("description"), "    ", f"`{kind}`.")
            lines += [f"    {variant}({kind}),"]
        return self.write(name, [*lines, "}", ""])


def snake_of(name):
    return snake(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name))


class Operation:
    """A method of the client."""

    def __init__(self, types, method, path, described):
        self.types, self.method, self.path = types, method, path
        self.described, self.id = described, described["operationId"]
        parameters = described.get("parameters", [])
        self.parameters = [one for one in parameters if one["name"] not in CLIENTS_OWN]

    def of_kind(self, kind):
        return [one for one in self.parameters if one["in"] == kind]

    def options(self):
        """A type for the parameters that may be left out; none where there are none."""
        chosen = self.of_kind("query") + self.of_kind("header")
        if not chosen:
            return None
        name = pascal(self.id) + "Options"
        lines = [f"/// What [`Client::{self.id}`] can be asked for."]
        lines += ["#[derive(Debug, Clone, Default, PartialEq, Serialize)]"]
        lines += ["#[non_exhaustive]", f"pub struct {name} {{"]
        for one in chosen:
            if one["required"]:
                raise Unknown(f"{self.id}: {one['name']} is required")
            kind, _ = self.types.rust(one["schema"], pascal(self.id) + pascal(one["name"]))
            lines += documented(one.get("description"), "    ", f"`{one['name']}`.")
            skip = 'skip_serializing_if = "Option::is_none"' if one["in"] == "query" else "skip"
            lines += [f"    #[serde({skip})]"]
            lines += [f"    pub {field_name(snake(one['name']))}: Option<{kind}>,"]
        return self.types.write(name, [*lines, "}", ""])

    def body(self):
        content = self.described.get("requestBody", {}).get("content")
        if not content:
            return None
        [(media, body)] = content.items()
        return media, self.types.rust(body["schema"], pascal(self.id) + "Body")[0]

    def answers(self):
        """`{status: (media, type)}` of what is not refused."""
        good = {}
        for status, answer in self.described["responses"].items():
            if not status.startswith("2"):
                continue
            content = answer.get("content", {})
            media, body = next(iter(content.items()), (None, None))
            kind = self.types.rust(body["schema"], pascal(self.id) + status)[0] if body else "()"
            good[status] = (media, f"Vec<{kind}>" if media == LINES else kind)
        return good

    def answer(self):
        """`(type, how it is read)`."""
        read = {JSON: "answer.json()", LINES: "answer.lines()", TEXT: "Ok(answer.text())"}
        good = self.answers()
        if len(set(good.values())) == 1:
            media, kind = next(iter(good.values()))
            return kind, read[media] if media else None
        name = pascal(self.id) + "Answer"
        lines = [f"/// What [`Client::{self.id}`] came to.", "#[derive(Debug, Clone, PartialEq)]"]
        lines += ["#[non_exhaustive]", f"pub enum {name} {{"]
        arms = []
        for status, (media, kind) in good.items():
            variant = {"200": "Done", "201": "Created", "202": "Begun"}[status]
            lines += [f"    /// {status}", f"    {variant}({kind}),"]
            arms += [f"{status} => {read[media]}.map({name}::{variant}),"]
        self.types.write(name, [*lines, "}", ""])
        # A success that the description does not have is read as the first.
        arms[0] = "_ => " + arms[0].split(" => ")[1]
        arms = "\n".join([*arms[1:], arms[0]])
        return name, f"match answer.status.as_u16() {{ {arms} }}"

    def segments(self):
        """The path's segments as an array, and the arguments that fill it."""
        kinds = {one["name"]: one["schema"]["type"] for one in self.of_kind("path")}
        segments, arguments = [], []
        for part in self.path.strip("/").split("/"):
            if not part.startswith("{"):
                segments.append(f'"{part}"')
                continue
            name = field_name(part.strip("{}"))
            kind = {"string": "&str", "integer": "i64"}[kinds[part.strip("{}")]]
            arguments.append(f"{name}: {kind}")
            segments.append(name if kind == "&str" else f"&{name}.to_string()")
        return f"&[{', '.join(segments)}]", arguments

    def write(self):
        path, arguments = self.segments()
        calls = ""
        if body := self.body():
            media, kind = body
            arguments.append(f"body: &[{kind}]" if media == LINES else f"body: &{kind}")
            calls += {JSON: ".json(body)?", LINES: ".lines(body)?"}[media]
        if options := self.options():
            arguments.append(f"options: &{options}")
            calls += ".query(options)?" if self.of_kind("query") else ""
            for one in self.of_kind("header"):
                field = field_name(snake(one["name"]))
                calls += f'.header("{one["name"].lower()}", options.{field}.as_deref())?'
        kind, read = self.answer()
        said = f"{self.described.get('summary', self.id)}\n\n{self.described.get('description', '')}"
        lines = [*documented(said, "    ", self.id), "    ///", "    /// # Errors", "    ///"]
        lines += ["    /// What the API says, or that it says nothing."]
        lines += [f"    pub async fn {self.id}({', '.join(['&self', *arguments])}) -> Result<{kind}, Error> {{"]
        call = f"self.call(Method::{self.method.upper()}, {path})?{calls}.send().await?"
        lines += [f"let answer = {call};", read] if read else [f"{call};", "Ok(())"]
        return [*lines, "}", ""]


HEADER = """//! The API: a type for each of its schemas, and of [`Client`] a method for each operation.
//!
//! Generated from the description of the API. Ids and times are text as they are on the
//! wire: times are RFC 3339.

use std::collections::BTreeMap;

use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::change::Change;
use crate::client::{Client, Error};
"""


def generated(document):
    types = Types(document)
    for name in document["components"]["schemas"]:
        types.named(name)
    methods = []
    for path, item in document["paths"].items():
        for method, described in item.items():
            if method not in METHODS:
                raise Unknown(f"{path}: {method}")
            methods += Operation(types, method, path, described).write()
    written = [line for name in sorted(types.written) for line in types.written[name]]
    return "\n".join([HEADER, "impl Client {", *methods, "}", "", *written])


def main():
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} openapi.json api.rs")
    with open(sys.argv[1], encoding="utf-8") as file:
        document = json.load(file)
    try:
        text = generated(document)
    except (Unknown, KeyError, ValueError) as unknown:
        sys.exit(f"the description has a form that is not known here: {unknown!r}")
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(text)


main()
