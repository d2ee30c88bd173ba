"""Writing so that nothing is lost: atomic files, locks, scratch folders."""
