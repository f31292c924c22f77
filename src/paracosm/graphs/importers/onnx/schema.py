"""The messages of ONNX files that are read, by field number (onnx.proto, IR version 3 to 11)."""

from __future__ import annotations

from paracosm.graphs.importers.wire import Schema

__all__ = ["DTYPES", "ONNX"]

ONNX: Schema = {
    "ModelProto": {
        1: ("ir_version", "int"),
        2: ("producer_name", "string"),
        3: ("producer_version", "string"),
        7: ("graph", "GraphProto"),
        8: ("opset_import", "OperatorSetIdProto*"),
    },
    "OperatorSetIdProto": {1: ("domain", "string"), 2: ("version", "int")},
    "GraphProto": {
        1: ("node", "NodeProto*"),
        2: ("name", "string"),
        5: ("initializer", "TensorProto*"),
        11: ("input", "ValueInfoProto*"),
        12: ("output", "ValueInfoProto*"),
        13: ("value_info", "ValueInfoProto*"),
        15: ("sparse_initializer", "SparseTensorProto*"),
    },
    "NodeProto": {
        1: ("input", "string*"),
        2: ("output", "string*"),
        3: ("name", "string"),
        4: ("op_type", "string"),
        5: ("attribute", "AttributeProto*"),
        7: ("domain", "string"),
        9: ("metadata_props", "StringStringEntryProto*"),
    },
    "StringStringEntryProto": {1: ("key", "string"), 2: ("value", "string")},
    "AttributeProto": {
        1: ("name", "string"),
        2: ("f", "float"),
        3: ("i", "int"),
        4: ("s", "bytes"),
        5: ("t", "TensorProto"),
        6: ("g", "size"),
        7: ("floats", "float*"),
        8: ("ints", "int*"),
        9: ("strings", "bytes*"),
        20: ("type", "int"),
    },
    "TensorProto": {
        1: ("dims", "int*"),
        2: ("data_type", "int"),
        4: ("float_data", "float*"),
        5: ("int32_data", "int*"),
        7: ("int64_data", "int*"),
        8: ("name", "string"),
        # Only looked at where it is short: the values of a shape, not the weights.
        9: ("raw_data", "short"),
        10: ("double_data", "double*"),
    },
    "SparseTensorProto": {1: ("values", "TensorProto"), 3: ("dims", "int*")},
    "ValueInfoProto": {1: ("name", "string"), 2: ("type", "TypeProto")},
    "TypeProto": {1: ("tensor_type", "TypeProto.Tensor")},
    "TypeProto.Tensor": {1: ("elem_type", "int"), 2: ("shape", "TensorShapeProto")},
    "TensorShapeProto": {1: ("dim", "Dimension*")},
    "Dimension": {1: ("dim_value", "int"), 2: ("dim_param", "string")},
}

DTYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "string",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
    16: "bfloat16",
    17: "float8_e4m3fn",
    19: "float8_e5m2",
}
"""Names of types by their number."""
