"""Storms: real node processes under more than they were built for; disks and clocks that lie."""
