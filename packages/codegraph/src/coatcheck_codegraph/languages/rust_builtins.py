"""The names that Rust code has without an import."""

from __future__ import annotations

from typing import Final

from coatcheck_codegraph.words import words

BUILTINS: Final = frozenset(
    words(
        """
        std core alloc bool char str u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64
        slice Some None Ok Err drop Option Result Vec String Box ToString ToOwned Clone Copy Send
        Sync Sized Drop Fn FnMut FnOnce AsRef AsMut Into From TryFrom TryInto Default Iterator
        Extend IntoIterator DoubleEndedIterator ExactSizeIterator FromIterator Eq PartialEq Ord
        PartialOrd assert! assert_eq! assert_ne! cfg! column! compile_error! concat! dbg!
        debug_assert! debug_assert_eq! debug_assert_ne! env! eprint! eprintln! file! format!
        format_args! include! include_bytes! include_str! line! matches! module_path! option_env!
        panic! print! println! stringify! thread_local! todo! unimplemented! unreachable! vec!
        write! writeln!
        """
    )
)
