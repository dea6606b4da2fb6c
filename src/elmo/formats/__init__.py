"""Reads models in all formats (`load`), and writes native folders and bilm HDF5."""

from elmo.formats.bilm_hdf5 import save_bilm
from elmo.formats.model import Model
from elmo.formats.native import save_native
from elmo.formats.recognize import load

__all__ = ["Model", "load", "save_bilm", "save_native"]
