"""PHP: files declare their namespace, and are included by path or found by class name."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from typing import Final

import msgspec

from coatcheck_codegraph.facts import FileFacts, Import
from coatcheck_codegraph.language import Inside, Language, Outside
from coatcheck_codegraph.languages.php_extraction import RELATIVE, ROOT, extract
from coatcheck_codegraph.namespaces import NamespacesByProject
from coatcheck_codegraph.project import Project

# What PHP has without an import: the functions and classes of its core and usual extensions.

CLASSES: Final = (
    "ArgumentCountError ArithmeticError ArrayAccess ArrayIterator ArrayObject AssertionError "
    "BackedEnum BadFunctionCallException BadMethodCallException Closure CompileError Countable "
    "CurlHandle DateInterval DatePeriod DateTime DateTimeImmutable DateTimeInterface "
    "DateTimeZone DirectoryIterator DivisionByZeroError DOMAttr DOMDocument DOMElement DOMNode "
    "DOMNodeList DOMXPath DomainException Error ErrorException Exception Fiber "
    "FilesystemIterator Generator InfiniteIterator InvalidArgumentException Iterator "
    "IteratorAggregate IteratorIterator JsonException JsonSerializable LengthException "
    "LimitIterator LogicException OutOfBoundsException OutOfRangeException OverflowException "
    "PDO PDOException PDOStatement Phar RangeException RecursiveArrayIterator "
    "RecursiveDirectoryIterator RecursiveIteratorIterator ReflectionClass ReflectionEnum "
    "ReflectionException ReflectionFunction ReflectionMethod ReflectionNamedType "
    "ReflectionObject ReflectionParameter ReflectionProperty RuntimeException Serializable "
    "SimpleXMLElement SplFileInfo SplFileObject SplObjectStorage SplPriorityQueue SplQueue "
    "SplStack Stringable Throwable Traversable TypeError UnderflowException "
    "UnexpectedValueException UnhandledMatchError UnitEnum ValueError WeakMap WeakReference "
    "XMLReader XMLWriter ZipArchive mysqli stdClass"
)

FUNCTIONS: Final = (
    "abs addslashes array_chunk array_column array_combine array_count_values array_diff "
    "array_diff_assoc array_diff_key array_fill array_fill_keys array_filter array_flip "
    "array_intersect array_intersect_assoc array_intersect_key array_is_list array_key_exists "
    "array_key_first array_key_last array_keys array_map array_merge array_merge_recursive "
    "array_multisort array_pad array_pop array_product array_push array_rand array_reduce "
    "array_replace array_replace_recursive array_reverse array_search array_shift array_slice "
    "array_splice array_sum array_unique array_unshift array_values array_walk "
    "array_walk_recursive arsort asort assert base64_decode base64_encode basename bin2hex "
    "bindec call_user_func call_user_func_array ceil chdir checkdate chmod chr chunk_split "
    "class_exists class_implements class_parents class_uses clearstatcache closedir compact "
    "constant copy cos count crc32 ctype_alnum ctype_alpha ctype_digit ctype_lower ctype_space "
    "ctype_upper ctype_xdigit curl_close curl_errno curl_error curl_exec curl_getinfo curl_init "
    "curl_setopt curl_setopt_array current date date_default_timezone_get "
    "date_default_timezone_set debug_backtrace decbin dechex define defined dirname end "
    "enum_exists error_get_last error_log error_reporting escapeshellarg exec explode "
    "extension_loaded extract fclose feof fflush fgetc fgetcsv fgets file file_exists "
    "file_get_contents file_put_contents fileatime filemtime fileperms filesize filter_input "
    "filter_var floatval flock floor fmod fopen forward_static_call fprintf fputcsv fputs fread "
    "fseek fstat ftell ftruncate func_get_args func_num_args function_exists fwrite "
    "gc_collect_cycles get_called_class get_class get_class_methods get_debug_type "
    "get_object_vars get_parent_class get_resource_type getcwd getenv gettype glob gzcompress "
    "gzdecode gzencode gzinflate gzuncompress hash hash_algos hash_equals hash_hmac header "
    "headers_sent hex2bin hexdec hrtime html_entity_decode htmlentities htmlspecialchars "
    "http_build_query http_response_code iconv implode in_array ini_get ini_set intdiv "
    "interface_exists intval ip2long is_a is_array is_bool is_callable is_countable is_dir "
    "is_executable is_file is_finite is_float is_infinite is_int is_integer is_iterable is_link "
    "is_nan is_null is_numeric is_object is_readable is_resource is_scalar is_string "
    "is_subclass_of is_writable iterator_apply iterator_count iterator_to_array join "
    "json_decode json_encode json_last_error json_last_error_msg key key_exists krsort ksort "
    "lcfirst levenshtein link localeconv log ltrim mail max mb_check_encoding mb_convert_case "
    "mb_convert_encoding mb_detect_encoding mb_internal_encoding mb_str_split mb_strimwidth "
    "mb_strlen mb_strpos mb_strrpos mb_strtolower mb_strtoupper mb_strwidth mb_substr "
    "mb_substr_count md5 md5_file memory_get_peak_usage memory_get_usage method_exists "
    "microtime min mkdir mktime move_uploaded_file mt_rand mt_srand natcasesort natsort next "
    "nl2br number_format ob_end_clean ob_end_flush ob_get_clean ob_get_contents ob_get_level "
    "ob_start octdec opendir openssl_decrypt openssl_encrypt ord parse_str parse_url passthru "
    "password_hash password_verify pathinfo pclose php_sapi_name php_uname phpinfo phpversion "
    "pi popen pow preg_grep preg_last_error preg_match preg_match_all preg_quote preg_replace "
    "preg_replace_callback preg_split prev print_r printf proc_close proc_open property_exists "
    "putenv quotemeta rand random_bytes random_int range rawurldecode rawurlencode readdir "
    "readfile readline realpath register_shutdown_function rename reset restore_error_handler "
    "restore_exception_handler rewind rmdir round rsort rtrim scandir serialize session_destroy "
    "session_id session_start set_error_handler set_exception_handler set_time_limit setcookie "
    "setlocale settype sha1 sha1_file shell_exec shuffle similar_text simplexml_load_string sin "
    "sleep sort spl_autoload_register spl_object_hash spl_object_id sprintf sqrt srand sscanf "
    "stat str_contains str_ends_with str_getcsv str_ireplace str_pad str_repeat str_replace "
    "str_split str_starts_with str_word_count strcasecmp strcmp strcspn stream_context_create "
    "stream_copy_to_stream stream_get_contents stream_get_meta_data stream_isatty stream_select "
    "stream_set_blocking stream_set_timeout strftime strip_tags stripos stripslashes stristr "
    "strlen strnatcasecmp strnatcmp strncasecmp strncmp strpbrk strpos strrchr strrev strripos "
    "strrpos strspn strstr strtok strtolower strtotime strtoupper strtr strval substr "
    "substr_compare substr_count substr_replace symlink sys_get_temp_dir system tempnam time "
    "tmpfile token_get_all touch trait_exists trigger_error trim uasort ucfirst ucwords uksort "
    "umask uniqid unlink unpack unserialize urldecode urlencode usleep usort utf8_decode "
    "utf8_encode var_dump var_export version_compare vprintf vsprintf wordwrap"
)


_BUILTINS: Final = frozenset([*CLASSES.split(), *FUNCTIONS.split()])
_namespaces = NamespacesByProject("php")


class PhpRules:
    """A class is found by its namespace; one that is copied, where ``composer.json`` says it is."""

    def target(self, project: Project, file: FileFacts, imported: Import) -> Inside | Outside:
        if imported.kind == "require":
            path = _included(project, file.path, imported.module)
            return Outside(imported.module) if path is None else Inside((path,))
        names = tuple(imported.module.split("\\"))
        autoloaded = _autoloaded(project, file.path, names)
        if autoloaded is not None:
            return Inside((autoloaded,), item=names[-1])
        found = _namespaces(project).find(names, file.path)
        if found is not None and (found.item or imported.kind == "class"):
            return found
        return Outside("\\".join(names[:-1] or names))

    def neighbours(self, project: Project, file: FileFacts) -> Iterable[tuple[str, ...]]:
        # A function that its namespace does not have is that of no namespace.
        return _namespaces(project).beside(file.package, ())

    def root(self, project: Project, file: FileFacts, name: str) -> Inside | Outside | None:
        namespaces = _namespaces(project)
        if name.startswith(ROOT):
            first = name.removeprefix(ROOT)
            return namespaces.find((first,), file.path) or Outside(first)
        relative = (*file.package, name.removeprefix(RELATIVE))
        return namespaces.find(relative, file.path)


def _included(project: Project, path: str, included: str) -> str | None:
    """The file that is included: from the including one's folder, or from any, if only one fits."""
    beside = posixpath.normpath(posixpath.join(posixpath.dirname(path), included))
    if beside in project:
        return beside
    if included.startswith("."):
        return None
    ending = project.ending(posixpath.normpath(included))
    return ending[0] if len(ending) == 1 else None


def _autoloaded(project: Project, path: str, names: tuple[str, ...]) -> str | None:
    """Where ``composer.json`` says that a class is."""
    manifest = project.nearest_manifest(path, "composer.json")
    if manifest is None or "composer.psr4" not in manifest.properties:
        return None
    folder = posixpath.dirname(manifest.path)
    for prefix, folders in _psr4(manifest.properties["composer.psr4"]):
        of_prefix = tuple(part for part in prefix.split("\\") if part)
        if names[: len(of_prefix)] == of_prefix and len(names) > len(of_prefix):
            rest = "/".join(names[len(of_prefix) :]) + ".php"
            for source in folders:
                found = posixpath.normpath(posixpath.join(folder, source, rest))
                if found in project and _declares(project, found, names):
                    return found
    return None


def _declares(project: Project, path: str, names: tuple[str, ...]) -> bool:
    return path in _namespaces(project).declaring(names[:-1], names[-1])


def _psr4(text: str) -> list[tuple[str, list[str]]]:
    """Folders by the namespace that is in them, the longest first. Whatever else is passed over."""
    try:
        said = msgspec.json.decode(text, type=dict[str, str | list[str]])
    except msgspec.MsgspecError:
        return []
    folders = [(key, [value] if isinstance(value, str) else value) for key, value in said.items()]
    return sorted(folders, key=lambda entry: (-len(entry[0]), entry[0]))


LANGUAGE: Final = Language(
    name="php",
    suffixes=(".php",),
    extract=extract,
    rules=PhpRules(),
    constructors=("__construct",),
    builtins=_BUILTINS,
)
