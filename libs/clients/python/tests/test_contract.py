"""Every operation of the contract is a method that sends what the contract says.

LINKREEL_OPENAPI names the contract as JSON; tests/contract sets it.
"""

import asyncio
import inspect
import json
import os
import re
import typing
import unittest

from linkreel import AsyncClient, Client, types

from .hostile import Answer
from .test_calls import Case

METHODS = ("get", "put", "post", "patch", "delete")


def snake(name):
    return re.sub("(?<!^)(?=[A-Z])", "_", name).lower()


@unittest.skipUnless(os.environ.get("LINKREEL_OPENAPI"), "LINKREEL_OPENAPI names no contract")
class Contract(Case):
    def setUp(self):
        with open(os.environ["LINKREEL_OPENAPI"], encoding="utf-8") as file:
            self.doc = json.load(file)

    def follow(self, value):
        while "$ref" in value:
            found = self.doc
            for part in value["$ref"].split("/")[1:]:
                found = found[part]
            value = found
        return value

    def operations(self):
        for path, item in self.doc["paths"].items():
            for method in METHODS:
                if method in item:
                    op = item[method]
                    yield method.upper(), path, op, [self.follow(p) for p in item.get("parameters", []) + op.get("parameters", [])]

    def answer(self, op):
        status, answer = next((s, self.follow(a)) for s, a in op["responses"].items() if s.startswith("2"))
        kind = next(iter(answer.get("content", {})), None)
        return Answer(int(status), b'{"data": []}', {"Content-Type": kind}) if kind else Answer(int(status))

    def fields(self, op):
        for kind, media in op.get("requestBody", {}).get("content", {}).items():
            schema = self.follow(media["schema"])
            return kind, {name for name, field in schema.get("properties", {}).items() if not field.get("readOnly")}
        return None, set()

    def test_every_operation_is_a_method_of_both_clients(self):
        operations = list(self.operations())
        self.assertGreater(len(operations), 70)
        for method, path, op, parameters in operations:
            with self.subTest(op["operationId"]):
                s = self.server(self.answer(op))
                with s.client() as client:
                    finish(call(client, snake(op["operationId"])))
                    names = [op["operationId"]]
                    if re.search("(^l|L)ist", names[0]):
                        names.append(re.sub("(^l|L)ist", "", names[0]))
                        finish(call(client, snake(names[1])))

                async def main():
                    async with s.async_client() as client:
                        for name in names:
                            result = call(client, snake(name))
                            if inspect.isawaitable(result):
                                await result
                            else:
                                self.assertEqual([item async for item in result if "data" not in item], [])
                asyncio.run(main())
                self.assertEqual(len(s.calls), 2 * len(names))
                for request in s.calls:
                    want = re.sub("{(.*?)}", lambda found: "a%2F" + found[1], path)
                    self.assertEqual((request.method, request.path.partition("?")[0]), (method, want))
                for request in (s.calls[0], s.calls[len(names)]):
                    for parameter in parameters:
                        if parameter["in"] == "query":
                            self.assertRegex(request.path, "[?&]%s=" % parameter["name"])
                    kind, fields = self.fields(op)
                    if kind:
                        self.assertEqual(request.headers["Content-Type"], kind)
                    if fields:
                        self.assertEqual(set(request.json), fields)

    def test_both_clients_have_the_same_methods_and_arguments(self):
        def methods(of):
            found = {}
            for name, method in inspect.getmembers(of, inspect.isfunction):
                if not name.startswith("_") and name != "close":
                    found[name] = [(p.name, p.kind, p.default) for p in inspect.signature(method).parameters.values()]
            return found
        self.assertEqual(methods(Client), methods(AsyncClient))

    def test_a_type_has_the_fields_of_its_schema(self):
        compared = 0
        for name, schema in self.doc["components"]["schemas"].items():
            fields = {f for f, field in schema.get("properties", {}).items() if not field.get("readOnly")}
            kind = getattr(types, name, None)
            if fields and typing.is_typeddict(kind):
                compared += 1
                self.assertEqual(set(kind.__annotations__) - {"hasMore", "nextCursor"}, fields - {"hasMore", "nextCursor"}, name)
        self.assertGreater(compared, 50)


def call(client, name):
    """Call a method with a value for every argument."""
    method, positional, named = getattr(client, name), [], {}
    for parameter in inspect.signature(method).parameters.values():
        if parameter.name == "options":
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append("a/" + parameter.name)
        else:
            named[parameter.name] = value(parameter.annotation)
    return method(*positional, **named)


def value(annotation):
    for word, example in (("Day", "2027-04-01"), ("Sequence", ["a"]), ("int", 1), ("bool", True), ("Literal", "a")):
        if word in annotation:
            return example
    return "a"


def finish(result):
    if inspect.isgenerator(result):
        list(result)


if __name__ == "__main__":
    unittest.main()
