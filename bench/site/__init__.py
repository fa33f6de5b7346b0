"""A site of many campaigns: static pages that need no server and ask nobody for anything."""
