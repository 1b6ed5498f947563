# SPDX-License-Identifier: Apache-2.0
"""Modules of an installed package by themselves: whatever else of the package they import is a stub."""
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from pathlib import Path
from unittest.mock import MagicMock


class _AnyClass(type):
    """Of stub classes: everything is an instance of them, and they have every attribute."""

    def __instancecheck__(cls, thing):
        return True

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock()


class _Stub(types.ModuleType):
    __path__: list = []
    values: dict = {}

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in self.values:
            camel = name[0].isupper() and name != name.upper()
            self.values[name] = _AnyClass(name, (), {"__init__": lambda *_, **__: None}) if camel else MagicMock(name=name)
        return self.values[name]


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, package, real):
        self.package, self.real = package, real
        self.folder = Path(importlib.util.find_spec(package).submodule_search_locations[0]).parent

    def find_spec(self, name, path, target=None):
        if name.split(".")[0] != self.package:
            return None
        if name in self.real:
            return importlib.util.spec_from_file_location(name, self.folder / (name.replace(".", "/") + ".py"))
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return _Stub(spec.name)

    def exec_module(self, module):
        pass


def modules(package, names, **values):
    """The modules `names` of the package, as they are installed. `values` are what stubs have by name."""
    sys.meta_path.insert(0, _Finder(package, set(names)))
    _Stub.values.update(values)
    return [importlib.import_module(name) for name in names]
