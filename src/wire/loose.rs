//! JSON read for what is in it, in one pass and without building a tree.
//!
//! Model APIs differ in the types of their fields and send `null` where a number is documented. A derived `Deserialize`
//! fails on such a field, on a repeated key too, and then the whole body would count as broken. Here a field of another
//! type than expected is simply absent, so that only JSON which is none is an error.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A value read from whatever stands there; what it does not expect leaves the default.
pub trait Loose<'de>: Default {
    /// From a string.
    fn text(_text: Cow<'de, str>) -> Self {
        Self::default()
    }

    /// From a number.
    fn number(_number: f64) -> Self {
        Self::default()
    }

    /// From `true` or `false`.
    fn truth(_truth: bool) -> Self {
        Self::default()
    }

    /// From an object. An implementation reads it to its end.
    fn object<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        drain_map(map).map(|()| Self::default())
    }

    /// From an array. An implementation reads it to its end.
    fn array<A: SeqAccess<'de>>(seq: A) -> Result<Self, A::Error> {
        drain_seq(seq).map(|()| Self::default())
    }
}

/// The bridge from [`Loose`] to serde.
pub struct Read<T>(pub T);

impl<'de, T: Loose<'de>> Deserialize<'de> for Read<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any(PhantomData)).map(Read)
    }
}

struct Any<T>(PhantomData<T>);

impl<'de, T: Loose<'de>> Visitor<'de> for Any<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_borrowed_str<E>(self, v: &'de str) -> Result<T, E> {
        Ok(T::text(Cow::Borrowed(v)))
    }

    fn visit_str<E>(self, v: &str) -> Result<T, E> {
        Ok(T::text(Cow::Owned(v.to_owned())))
    }

    fn visit_u64<E>(self, v: u64) -> Result<T, E> {
        Ok(T::number(v as f64))
    }

    fn visit_i64<E>(self, v: i64) -> Result<T, E> {
        Ok(T::number(v as f64))
    }

    fn visit_f64<E>(self, v: f64) -> Result<T, E> {
        Ok(T::number(v))
    }

    fn visit_bool<E>(self, v: bool) -> Result<T, E> {
        Ok(T::truth(v))
    }

    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::object(map)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<T, A::Error> {
        T::array(seq)
    }
}

/// The next key of an object.
pub fn key<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Option<Cow<'de, str>>, A::Error> {
    Ok(map.next_key::<Read<Text<'de>>>()?.map(|k| k.0.0.unwrap_or_default()))
}

/// The value that belongs to the key just read.
pub fn value<'de, T: Loose<'de>, A: MapAccess<'de>>(map: &mut A) -> Result<T, A::Error> {
    map.next_value::<Read<T>>().map(|v| v.0)
}

/// Passes over the value that belongs to the key just read.
pub fn skip<'de, A: MapAccess<'de>>(map: &mut A) -> Result<(), A::Error> {
    map.next_value::<IgnoredAny>().map(|_| ())
}

/// Passes over the rest of an object.
pub fn drain_map<'de, A: MapAccess<'de>>(mut map: A) -> Result<(), A::Error> {
    while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
    Ok(())
}

/// Passes over the rest of an array.
pub fn drain_seq<'de, A: SeqAccess<'de>>(mut seq: A) -> Result<(), A::Error> {
    while seq.next_element::<IgnoredAny>()?.is_some() {}
    Ok(())
}

/// A string, borrowed where the JSON has no escape in it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Text<'a>(pub Option<Cow<'a, str>>);

impl Text<'_> {
    /// The string, if it is one.
    pub fn as_deref(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl<'de> Loose<'de> for Text<'de> {
    fn text(text: Cow<'de, str>) -> Self {
        Text(Some(text))
    }
}

/// A count: a number that is not negative.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Count(pub Option<u64>);

impl Loose<'_> for Count {
    fn number(number: f64) -> Self {
        // `as` saturates, so that an absurd count is the largest one and no panic.
        Count((number >= 0.0).then_some(number as u64))
    }
}

/// Whether a value says anything: `null`, `false`, `""`, `[]`, `{}` and arrays and objects of such do not.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Filled(pub bool);

impl<'de> Loose<'de> for Filled {
    fn text(text: Cow<'de, str>) -> Self {
        Filled(!text.is_empty())
    }

    fn number(_number: f64) -> Self {
        Filled(true)
    }

    fn truth(truth: bool) -> Self {
        Filled(truth)
    }

    fn object<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        while let Some((_, Read(filled))) = map.next_entry::<IgnoredAny, Read<Filled>>()? {
            if filled.0 {
                return drain_map(map).map(|()| Filled(true));
            }
        }
        Ok(Filled(false))
    }

    fn array<A: SeqAccess<'de>>(mut seq: A) -> Result<Self, A::Error> {
        while let Some(Read(filled)) = seq.next_element::<Read<Filled>>()? {
            if filled.0 {
                return drain_seq(seq).map(|()| Filled(true));
            }
        }
        Ok(Filled(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(json: &str) -> bool {
        serde_json::from_str::<Read<Filled>>(json).unwrap().0.0
    }

    #[test]
    fn what_says_something() {
        for json in ["null", "false", "\"\"", "[]", "{}", "[{}]", r#"[{"text":""}]"#, r#"{"a":null}"#] {
            assert!(!filled(json), "{json}");
        }
        for json in ["0", "true", "\"a\"", "[1]", r#"[{},{"text":"a"},{}]"#, r#"{"a":null,"b":{"c":1},"d":[]}"#] {
            assert!(filled(json), "{json}");
        }
    }

    #[test]
    fn other_types_are_absent() {
        let count = |json| serde_json::from_str::<Read<Count>>(json).unwrap().0.0;
        assert_eq!(count("7"), Some(7));
        assert_eq!(count("7.0"), Some(7));
        assert_eq!(count("-1"), None);
        assert_eq!(count("null"), None);
        assert_eq!(count("[1,2]"), None);
        assert_eq!(count("1e300"), Some(u64::MAX));
    }
}
