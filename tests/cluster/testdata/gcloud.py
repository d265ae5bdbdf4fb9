"""Rewrites gcloud.json from the installed gcloud: the flags of each command that the file names.

To add a command, add its name with an empty list, and run: python3 tests/cluster/testdata/gcloud.py
"""

import importlib.util
import json
import pathlib
import shutil

sdk = pathlib.Path(shutil.which("gcloud")).resolve().parent.parent
spec = importlib.util.spec_from_file_location("completions", sdk / "data/cli/gcloud_completions.py")
completions = importlib.util.module_from_spec(spec)
spec.loader.exec_module(completions)

file = pathlib.Path(__file__).with_name("gcloud.json")
names = json.loads(file.read_text())
out = {}
for name in names:
    node = completions.STATIC_COMPLETION_CLI_TREE
    for word in name.split():
        node = node["commands"][word]
    out[name] = sorted(node.get("flags") or {})
file.write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in out.items()) + "\n}\n")
