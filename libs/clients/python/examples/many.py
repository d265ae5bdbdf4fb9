"""Many calls at once with asyncio: create links, see them in the feed, delete them.

    LINKREEL_BASE_URL=http://localhost:8080 LINKREEL_API_KEY=lr_live_… python3 many.py
"""

import asyncio
import os

from linkreel import AsyncClient


async def main(base_url: str, key: str) -> None:
    async with AsyncClient(base_url, key, threads=8) as client:
        feed = await client.follow_events(type=["link.created"])
        made = await asyncio.gather(*(client.create_link("https://example.com/%d" % i, tags=["concurrent"]) for i in range(60)))
        ids = sorted(link["id"] for link in made)
        seen = [(await asyncio.wait_for(feed.__anext__(), 60))["object"] for _ in ids]
        listed = [link["_id"] async for link in client.links(tag="concurrent")]
        print("created %d, each once in the feed: %s, in the list: %s" % (len(set(ids)), sorted(seen) == ids, sorted(listed) == ids))
        await asyncio.gather(*(client.delete_link(id) for id in ids))
        print("left:", [link["_id"] async for link in client.links(tag="concurrent")])


if __name__ == "__main__":
    asyncio.run(main(os.environ["LINKREEL_BASE_URL"], os.environ["LINKREEL_API_KEY"]))
