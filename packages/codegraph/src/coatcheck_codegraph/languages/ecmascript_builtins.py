"""JavaScript's global names, and the modules of Node."""

from __future__ import annotations

from typing import Final

GLOBALS: Final = frozenset(
    """
    AbortController AbortSignal AggregateError Array ArrayBuffer Atomics BigInt BigInt64Array
    BigUint64Array Blob Boolean BroadcastChannel Buffer CustomEvent DOMException DOMParser DataView
    Date Document Element Error EvalError Event EventSource EventTarget File FileReader
    FinalizationRegistry Float32Array Float64Array FormData Function HTMLElement Headers Image
    ImageData Infinity Int16Array Int32Array Int8Array IntersectionObserver Intl Iterator JSON Map
    Math MessageChannel MessagePort MutationObserver NaN Node Number Object Path2D Promise Proxy
    RangeError ReadableStream ReferenceError Reflect RegExp Request ResizeObserver Response Set
    SharedArrayBuffer String Symbol SyntaxError TextDecoder TextEncoder TransformStream TypeError
    URIError URL URLSearchParams Uint16Array Uint32Array Uint8Array Uint8ClampedArray WeakMap
    WeakRef WeakSet WebAssembly WebSocket Worker WritableStream XMLHttpRequest
    addEventListener alert atob btoa cancelAnimationFrame clearImmediate clearInterval clearTimeout
    confirm console crypto customElements decodeURI decodeURIComponent dispatchEvent document
    encodeURI encodeURIComponent escape eval fetch getComputedStyle global globalThis history
    indexedDB isFinite isNaN localStorage location matchMedia module navigator parseFloat parseInt
    performance postMessage process prompt queueMicrotask removeEventListener requestAnimationFrame
    requestIdleCallback require screen self sessionStorage setImmediate setInterval setTimeout
    structuredClone undefined unescape window
    """.split()  # noqa: SIM905
)
"""Of the language, of browsers and of Node."""

TEST_GLOBALS: Final = frozenset(
    """
    after afterAll afterEach assert before beforeAll beforeEach context describe expect it jest
    sinon specify suite test vi
    """.split()  # noqa: SIM905
)
"""Of the usual test runners."""

GLOBAL_TYPES: Final = frozenset(
    """
    AsyncGenerator AsyncIterable AsyncIterableIterator AsyncIterator Generator Iterable
    IterableIterator JSX NodeJS PromiseLike PropertyKey React ReadonlyArray ReadonlyMap ReadonlySet
    Record
    """.split()  # noqa: SIM905
)
"""Types that TypeScript has without an import."""

NODE_MODULES: Final = frozenset(
    """
    assert async_hooks buffer child_process cluster console constants crypto dgram
    diagnostics_channel dns domain events fs http http2 https inspector module net os path
    perf_hooks process punycode querystring readline repl stream string_decoder sys test timers tls
    trace_events tty url util v8 vm wasi worker_threads zlib
    """.split()  # noqa: SIM905
) - {"test"}
