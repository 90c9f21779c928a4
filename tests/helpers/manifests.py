"""Change the manifest of a model directory."""

import json

from uulearn.estimator import model_directory


def rewrite(folder, change):
    """Change the manifest and fix its checksum, as an attacker would."""
    manifest = json.loads((folder / "model.json").read_text())
    manifest.pop("checksum")
    change(manifest)
    manifest["checksum"] = model_directory.checksum(manifest)
    (folder / "model.json").write_text(json.dumps(manifest))


def put(*keys):
    *path, last, value = keys

    def change(manifest):
        for key in path:
            manifest = manifest[key]
        manifest[last] = value

    return change
