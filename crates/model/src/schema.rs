//! Pieces of schemas that types alone cannot say: bounds of maps, and patterns of quantities.

use schemars::{Schema, SchemaGenerator, json_schema};

/// What Kubernetes accepts as a quantity of CPU, memory or storage, without signs and exponents.
const QUANTITY: &str = "^[0-9]+(\\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi)?$";

pub fn quantity_option(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "nullable": true, "maxLength": 20, "pattern": QUANTITY })
}

pub fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object", "maxProperties": 16,
        "additionalProperties": { "type": "string", "maxLength": 63 }
    })
}

/// File, section, option.
pub fn extra_config(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object", "maxProperties": 16,
        "additionalProperties": {
            "type": "object", "maxProperties": 64,
            "additionalProperties": {
                "type": "object", "maxProperties": 128,
                "additionalProperties": { "type": "string", "maxLength": 4096 }
            }
        }
    })
}

pub fn policy(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object", "maxProperties": 512,
        "additionalProperties": { "type": "string", "maxLength": 4096 }
    })
}
