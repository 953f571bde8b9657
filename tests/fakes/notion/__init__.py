"""A fake of Notion: its REST API over HTTP on loopback, its webhooks, and how it misbehaves.

    world = World(index_lag=300)
    page = world.create_page(None, "Plan", markdown="# Goals")
    with NotionServer(world) as server:
        client = notion_client.Client(auth=server.token, base_url=server.base_url, notion_version=NEW)
        server.faults.script("rate_limited", on="search", times=2)
        world.manual.advance(300)  # now search finds the page
        world.truth()[page]  # what a reader must know

Written for API versions 2025-09-03 and 2026-03-11, from Notion's documents of 2026 (developers.notion.com: retrieve a
page as Markdown, enhanced Markdown, request limits, status codes, upgrade guide to 2026-03-11, event types and
delivery, block) and from the types of its JavaScript SDK 5.26.0 (names and types of all fields, types of blocks,
properties and events, error codes, how a signature is made, 10,000 rows a query). The envelope of errors and lists,
`request_id` and the messages of 401, of an unknown path and of a missing version agree with `backlot` 0.1.0, whose
authors say that they measured them; see `second_opinion`. Where the two differ: there, `archived` is in the newest
version too, headings have no `is_toggleable`, databases have a `database_type`, a malformed id is a 404 (here 400), a
page size above 100 is taken as 100 (here refused), and there are no Markdown, no items of properties, no files, no
faults and no webhooks.

Not documented, or not found, and so a guess or from memory:

- How search behaves while its index lags: here a page is found, by its title and in its place, as the index knows it,
  but shown as it is now; the trash and access take effect at once.
- What cursors are: here random UUIDs that are good for the same request only. A page size above 100 is refused.
- Values of `rate_limit_reason`, and whether windows of a minute begin on the minute.
- That unsupported blocks (bookmark, embed and so on) are `<unknown>` in Markdown, but not in `unknown_block_ids`: the
  document says that the list has what is truncated or not shared. `World.markdown_lists_unsupported` has them in it.
- Markdown of tabs, of links to pages, of meeting notes whose transcript is left out, and of captions of code.
- Blocks below meeting notes, which here are paragraphs without text.
- What a page in the trash still shows: here all of it, with `in_trash`. A purged one is unknown (404).
- That a child page that is not shared is still named among its parent's blocks; that its Markdown has `<unknown>` in
  its place is documented.
- That moving a page leaves its `last_edited_time`, that trashing it does not.
- That access which is taken away makes no event; none is documented.
- That the title of a page makes `page.content_updated` (documented) and that of a row `page.properties_updated`.
- How long a failed event waits for its next attempt: here 2, 4, 8 ... minutes. Eight attempts are documented.
- The order of a query without `sorts`. Filters and sorts by properties are refused; the fake has timestamps only.
- The refusal to read a block that the API does not know (`ai_block`, `button`, `form`) is from reports of users.
"""

from tests.fakes.notion.faults import Fault, Faults
from tests.fakes.notion.nodes import ManualClock, Parent, Said
from tests.fakes.notion.render import NEW, OLD
from tests.fakes.notion.server import NotionServer
from tests.fakes.notion.webhooks import Webhooks, signature
from tests.fakes.notion.world import World
from tests.fakes.notion.zoo import Zoo, zoo

__all__ = [
    "NEW",
    "OLD",
    "Fault",
    "Faults",
    "ManualClock",
    "NotionServer",
    "Parent",
    "Said",
    "Webhooks",
    "World",
    "Zoo",
    "signature",
    "zoo",
]
