#!/usr/bin/env python3
"""The failed tests of a ctest report and the last lines that each printed: failed.py REPORT.xml"""
import sys
import xml.etree.ElementTree as ET

LINES, TESTS = 18, 3


def main():
    failed = [case for case in ET.parse(sys.argv[1]).getroot().iter("testcase")
              if case.find("failure") is not None]
    for case in failed[:TESTS]:
        print(f"---- {case.get('name')} failed: its last lines")
        printed = (case.findtext("system-out") or "(it printed nothing)").rstrip().split("\n")
        print("\n".join(line[:240] for line in printed[-LINES:]))
    print("failed: " + " ".join(case.get("name") for case in failed))


if __name__ == "__main__":
    main()
