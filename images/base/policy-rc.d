#!/bin/sh
# Package scripts must not start daemons while an image is built: 101 means "forbidden by policy".
exit 101
