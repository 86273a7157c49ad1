"""The blocks of WordPress's editor, rendered by PHP. What is asserted was read in its source."""

from __future__ import annotations

from functools import cache

from coatcheck_codegraph.project import Project
from packages.codegraph.tests.graphs import Seen, parsed, seen_in
from tests.corpus import package

SEARCH = "search/index.php"
LINK = "navigation-link/index.php"
SHARED = "navigation-link/shared"
NAVIGATION = "navigation/index.php"
RENDERER = f"{NAVIGATION}:WP_Navigation_Block_Renderer"


@cache
def blocks() -> Seen:
    folder = package("block-library") / "src"
    return seen_in(
        Project(
            [
                parsed(path.relative_to(folder).as_posix(), path.read_bytes())
                for path in sorted(folder.rglob("*.php"))
            ]
        )
    )


def test_calls_lead_to_the_functions_that_they_run() -> None:
    render = f"{SEARCH}:render_block_core_search"
    styles = f"{SEARCH}:apply_block_core_search_border_styles"
    link = f"{LINK}:render_block_core_navigation_link"
    icon = f"{SHARED}/render-submenu-icon.php:block_core_shared_navigation_render_submenu_icon"
    should = f"{SHARED}/item-should-render.php:block_core_shared_navigation_item_should_render"

    assert {
        (render, f"{SEARCH}:classnames_for_block_core_search", 31),
        (render, f"{SEARCH}:styles_for_block_core_search", 39),
        (render, f"{SEARCH}:get_color_classes_for_block_core_search", 40),
        (render, f"{SEARCH}:get_typography_classes_for_block_core_search", 41),
        (render, f"{SEARCH}:get_border_color_classes_for_block_core_search", 45),
        (styles, f"{SEARCH}:apply_block_core_search_border_style", 347),
        (styles, f"{SEARCH}:apply_block_core_search_border_style", 351),
        (f"{SEARCH}:styles_for_block_core_search", styles, 388),
        (link, should, 196),
        (link, icon, 288),
        (link, f"{LINK}:block_core_navigation_link_maybe_urldecode", 238),
        (f"{RENDERER}.get_classes", f"{RENDERER}.get_layout_class", 652),
        (f"{RENDERER}.get_classes", f"{NAVIGATION}:block_core_navigation_build_css_colors", 653),
        (f"{RENDERER}.get_classes", f"{RENDERER}.is_responsive", 655),
        (f"{RENDERER}.get_inner_blocks", f"{RENDERER}.get_inner_blocks_from_fallback", 554),
    } <= blocks().any_calls


def test_calls_of_what_is_elsewhere_lead_nowhere() -> None:
    lines = {(caller, line) for caller, _, line in blocks().any_calls}
    link = f"{LINK}:render_block_core_navigation_link"

    assert (f"{SEARCH}:render_block_core_search", 22) not in lines  # wp_parse_args()
    assert (f"{SEARCH}:render_block_core_search", 52) not in lines  # of a class of WordPress
    assert (link, 194) not in lines  # gutenberg_..., which only the plugin's build has
    assert (link, 212) not in lines  # render() of an element of who knows what


def test_a_path_that_only_a_build_makes_true_is_not_taken_for_another() -> None:
    imports = {target for path, target in blocks().imports if path == LINK}

    assert imports == {
        "./navigation-link/shared/item-should-render.php",
        "./navigation-link/shared/render-submenu-icon.php",
    }
