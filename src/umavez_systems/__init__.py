"""The systems that stand on umavez, and the server that carries them. They import its public names only."""

from importlib.util import find_spec

for _name in ("alembic", "fastapi", "pydantic_settings", "sqlalchemy", "uvicorn"):
    # Looked for, not imported: the command line reads this package for every command.
    if find_spec(_name) is None:
        raise ModuleNotFoundError(
            f"umavez_systems needs {_name}, which is not installed; run: pip install 'umavez[systems]'.", name=_name
        )
