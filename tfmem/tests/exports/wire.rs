//! Protocol buffers on the wire, read by hand: an encoder must not be its own judge.

/// A field: its number and what it holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Field {
    Number(u64, u64),
    Bytes(u64, Vec<u8>),
}

pub fn fields(mut bytes: &[u8]) -> Vec<Field> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        out.push(match key & 7 {
            0 => Field::Number(key >> 3, varint(&mut bytes)),
            2 => {
                let size = varint(&mut bytes) as usize;
                let (value, rest) = bytes.split_at(size);
                bytes = rest;
                Field::Bytes(key >> 3, value.to_vec())
            }
            kind => panic!("a field of kind {kind}"),
        });
    }
    out
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            break;
        }
    }
    value
}

/// All messages or texts of a field.
pub fn all(fields: &[Field], number: u64) -> Vec<&[u8]> {
    let of = |field| match field {
        &Field::Bytes(n, ref bytes) if n == number => Some(bytes.as_slice()),
        _ => None,
    };
    fields.iter().filter_map(of).collect()
}

pub fn number(fields: &[Field], number: u64) -> u64 {
    fields
        .iter()
        .find_map(|field| if let &Field::Number(n, value) = field { (n == number).then_some(value) } else { None })
        .unwrap_or(0)
}

/// Numbers of a field that has many of them in one piece.
pub fn packed(fields: &[Field], number: u64) -> Vec<u64> {
    let mut out = Vec::new();
    for mut bytes in all(fields, number) {
        while !bytes.is_empty() {
            out.push(varint(&mut bytes));
        }
    }
    out
}
