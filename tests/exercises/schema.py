"""schema.py: does a value follow a JSON schema?  The words that results.schema.json uses, and no
others: type, required, properties, additionalProperties, items, minimum."""

TYPES = {"object": dict, "array": list, "string": str, "null": type(None), "integer": int,
         "number": (int, float)}
WORDS = {"$schema", "title", "type", "required", "properties", "additionalProperties", "items",
         "minimum"}


def is_of(value, name):
    return isinstance(value, TYPES[name]) and not isinstance(value, bool)


def complaints(value, schema, where="$"):
    """What is wrong, a line each."""
    if set(schema) - WORDS:
        yield f"{where}: schema.py does not know {set(schema) - WORDS}"
    names = schema.get("type", list(TYPES))
    names = [names] if isinstance(names, str) else names
    if not any(is_of(value, name) for name in names):
        yield f"{where}: {value!r} is not {' or '.join(names)}"
        return
    if "minimum" in schema and value < schema["minimum"]:
        yield f"{where}: {value} is below {schema['minimum']}"
    for item in value if isinstance(value, list) else ():
        yield from complaints(item, schema.get("items", {}), f"{where}[]")
    if not isinstance(value, dict):
        return
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{where}: no {name}"
    for name, one in value.items():
        rest = schema.get("additionalProperties", True)
        part = schema.get("properties", {}).get(name, {} if rest is True else rest)
        if part is False:
            yield f"{where}: {name} is no property"
        else:
            yield from complaints(one, part, f"{where}.{name}")
