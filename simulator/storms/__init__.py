"""Storms: real node processes under more than they were built for, and disks and clocks that lie."""
