"""The messages of TensorFlow's files that are read, by field number (tensorflow/core/framework)."""

from __future__ import annotations

from paracosm.graphs.importers.wire import Schema

__all__ = ["DTYPES", "TENSORFLOW"]

TENSORFLOW: Schema = {
    "SavedModel": {1: ("saved_model_schema_version", "int"), 2: ("meta_graphs", "MetaGraphDef*")},
    "MetaGraphDef": {2: ("graph_def", "GraphDef"), 5: ("signature_def", "map:SignatureDef")},
    "SignatureDef": {1: ("inputs", "map:TensorInfo"), 2: ("outputs", "map:TensorInfo")},
    "TensorInfo": {1: ("name", "string")},
    "GraphDef": {
        1: ("node", "NodeDef*"),
        2: ("library", "FunctionDefLibrary"),
        4: ("versions", "VersionDef"),
    },
    "VersionDef": {1: ("producer", "int")},
    "FunctionDefLibrary": {1: ("function", "FunctionDef*")},
    "FunctionDef": {
        1: ("signature", "OpDef"),
        3: ("node_def", "NodeDef*"),
        4: ("ret", "map:string"),
    },
    "OpDef": {1: ("name", "string"), 2: ("input_arg", "ArgDef*"), 3: ("output_arg", "ArgDef*")},
    "ArgDef": {1: ("name", "string"), 3: ("type", "int")},
    "NodeDef": {
        1: ("name", "string"),
        2: ("op", "string"),
        3: ("input", "string*"),
        4: ("device", "string"),
        5: ("attr", "map:AttrValue"),
    },
    "AttrValue": {
        1: ("list", "ListValue"),
        2: ("s", "bytes"),
        3: ("i", "int"),
        4: ("f", "float"),
        5: ("b", "bool"),
        6: ("type", "int"),
        7: ("shape", "TensorShapeProto"),
        8: ("tensor", "TensorProto"),
        10: ("func", "NameAttrList"),
    },
    "ListValue": {
        3: ("i", "int*"),
        6: ("type", "int*"),
        7: ("shape", "TensorShapeProto*"),
    },
    "NameAttrList": {1: ("name", "string")},
    "TensorShapeProto": {2: ("dim", "Dim*"), 3: ("unknown_rank", "bool")},
    "Dim": {1: ("size", "int")},
    "TensorProto": {
        1: ("dtype", "int"),
        2: ("tensor_shape", "TensorShapeProto"),
        4: ("tensor_content", "short"),
        7: ("int_val", "int*"),
        10: ("int64_val", "int*"),
    },
    "RunMetadata": {1: ("step_stats", "StepStats")},
    # A RunMetadata again: its graphs without its times.
    "PartitionedRun": {3: ("partition_graphs", "Partition*")},
    "Partition": {1: ("node", "PartitionNode*")},
    "PartitionNode": {
        1: ("name", "string"),
        2: ("op", "string"),
        3: ("input", "string*"),
        4: ("device", "string"),
        5: ("attr", "map:PartitionAttr"),
    },
    "PartitionAttr": {2: ("s", "bytes"), 5: ("b", "bool")},
    "StepStats": {1: ("dev_stats", "DeviceStepStats*")},
    "DeviceStepStats": {1: ("device", "string"), 2: ("node_stats", "NodeExecStats*")},
    "NodeExecStats": {
        1: ("node_name", "string"),
        2: ("all_start_micros", "int"),
        5: ("all_end_rel_micros", "int"),
        7: ("output", "NodeOutput*"),
        8: ("timeline_label", "string"),
        13: ("all_start_nanos", "int"),
        16: ("all_end_rel_nanos", "int"),
    },
    "NodeOutput": {1: ("slot", "int"), 3: ("tensor_description", "TensorDescription")},
    "TensorDescription": {
        1: ("dtype", "int"),
        2: ("shape", "TensorShapeProto"),
        4: ("allocation_description", "AllocationDescription"),
    },
    "AllocationDescription": {1: ("requested_bytes", "int")},
}

DTYPES = {
    1: "float32",
    2: "float64",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    7: "string",
    8: "complex64",
    9: "int64",
    10: "bool",
    14: "bfloat16",
    17: "uint16",
    18: "complex128",
    19: "float16",
    20: "resource",
    21: "variant",
    22: "uint32",
    23: "uint64",
}
"""Names of types by their number; a reference to a variable has 100 more."""
