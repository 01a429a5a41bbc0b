"""Horizon logs users in on all its pods and shows the panels of the services that the cloud has. In a browser, a user creates a
network, boots an instance and opens its console."""

# Runs in: browser
import base64
import contextlib
import json
import os
import re
import secrets
import subprocess
import time
import urllib.error
import urllib.request

import openstack
import requests

NAME = f"proof-{secrets.token_hex(4)}"
GUEST = "/guest/guest.qcow2"
# TEST-NET-3: no network of a cluster uses it.
RANGE = "203.0.113.0/28"
LIMIT = 240
LOGIN = "/auth/login/"
# Panels of a project, and the types of service of which the catalog has one if the panel is shown.
PANELS = {
    "instances": ["compute"],
    "images": ["image"],
    "networks": ["network"],
    "stacks": ["orchestration"],
    "volumes": ["block-storage", "volumev3"],
    "containers": ["object-store"],
}
# Files that the test keeps.
RESULTS = os.environ.get("RESULTS", "/tmp/results")
DRIVER = "http://127.0.0.1:9515"


def wait_until(description, condition):
    deadline = time.monotonic() + LIMIT
    while not (result := condition()):
        assert time.monotonic() < deadline, f"waited {LIMIT} s for {description}"
        time.sleep(1)
    return result


class Dashboard:
    """The dashboard as one user sees it without a browser. Each request has its own connection, and so any pod."""

    def __init__(self, url):
        self.url = url
        self.session = requests.Session()
        self.session.headers["Connection"] = "close"

    def get(self, path):
        answer = self.session.get(self.url + path, timeout=60)
        assert answer.status_code == 200, f"{path}: {answer.status_code}"
        return answer

    def log_in(self, username, password):
        """Sends the form of the login page, and returns whether the user is logged in."""
        form = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', self.get(LOGIN).text))
        form |= {"username": username, "password": password}
        answer = self.session.post(
            self.url + LOGIN, form, headers={"Referer": self.url + LOGIN}, allow_redirects=False, timeout=60
        )
        assert answer.status_code in (200, 302), answer.status_code
        return answer.status_code == 302

    def is_logged_in(self):
        return LOGIN not in self.get("/project/").url


def check_login(url, password):
    page = Dashboard(url).get(LOGIN).text
    files = re.findall(r'(?:src|href)="(/static/[^"]+)"', page)
    assert any(file.endswith(".css") for file in files), files
    for file in files:
        answer = Dashboard(url).get(file)
        expected = {"css": "text/css", "js": "text/javascript"}.get(file.rsplit(".", 1)[1])
        assert expected in (None, answer.headers["Content-Type"]), f"{file}: {answer.headers}"
    assert not Dashboard(url).log_in(NAME, secrets.token_hex(16)), "any password will do"
    dashboard = Dashboard(url)
    assert not dashboard.is_logged_in()
    assert dashboard.log_in(NAME, password)
    cookie = next(cookie for cookie in dashboard.session.cookies if cookie.name == "sessionid")
    assert cookie.has_nonstandard_attr("HttpOnly") and cookie.secure == url.startswith("https:"), vars(cookie)
    # A session that one pod or process held would be unknown to the others.
    assert all(dashboard.is_logged_in() for _ in range(30)), "a pod does not know the session"
    return dashboard


def check_panels(cloud, dashboard):
    access = cloud.session.auth.get_access(cloud.session)
    catalog = {service["type"] for service in access.service_catalog.catalog}
    shown = set(re.findall(r'openstack-panel[^>]* href="/project/(\w+)/"', dashboard.get("/project/").text))
    for panel, types in PANELS.items():
        assert (panel in shown) == any(one in catalog for one in types), f"{panel}: {sorted(shown)}"
    assert 'href="/admin/' not in dashboard.get("/project/").text, "a member sees the panels of administrators"
    for panel in shown:
        dashboard.get(f"/project/{panel}/")


def check_logout(dashboard):
    cookies = dashboard.session.cookies.copy()
    dashboard.session.get(dashboard.url + "/auth/logout/", timeout=60)
    dashboard.session.cookies = cookies
    assert not dashboard.is_logged_in(), "the session outlives the logout"


class Browser:
    """Chromium, by the WebDriver protocol."""

    def __init__(self):
        options = [
            # The pod has no privileges, and so no namespaces for the sandbox of the browser.
            "--no-sandbox",
            "--headless=new",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--window-size=1400,1000",
        ]
        wanted = {"browserName": "chrome", "goog:chromeOptions": {"args": options}}
        self.session = ""
        self.session = self.call("POST", "", capabilities={"alwaysMatch": wanted})["sessionId"]

    def call(self, method, path, **body):
        url = f"{DRIVER}/session/{self.session}{path}".rstrip("/")
        data = json.dumps(body).encode() if method == "POST" else None
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["value"]

    def close(self):
        self.call("DELETE", "")

    def open(self, url):
        self.call("POST", "/url", url=url)

    def find(self, selector):
        """The visible elements of a CSS selector, or of an XPath, which starts with a slash."""
        using = "xpath" if selector.startswith("/") else "css selector"
        found = self.call("POST", "/elements", using=using, value=selector)
        elements = [next(iter(element.values())) for element in found]
        return [element for element in elements if self.call("GET", f"/element/{element}/displayed")]

    def act(self, description, action):
        """Repeats an action until it succeeds: elements move, and pages replace them."""
        error = None

        def succeeds():
            nonlocal error
            try:
                return action()
            except urllib.error.HTTPError as failure:
                error = json.load(failure)["value"]["message"].splitlines()[0]
                return False

        try:
            return wait_until(description, succeeds)
        except AssertionError:
            self.screenshot("failure")
            raise AssertionError(f"{description}: {error or 'not found'}") from None

    def click(self, selector):
        def action():
            for element in self.find(selector)[:1]:
                self.call("POST", f"/element/{element}/click")
                return True

        self.act(f"a click on {selector}", action)

    def type(self, selector, text):
        def action():
            for element in self.find(selector)[:1]:
                self.call("POST", f"/element/{element}/clear")
                self.call("POST", f"/element/{element}/value", text=text)
                return True

        self.act(f"text in {selector}", action)

    def wait_for(self, selector):
        self.act(selector, lambda: self.find(selector))

    def enter_frame(self, selector):
        [frame] = self.call("POST", "/elements", using="css selector", value=selector)
        self.call("POST", "/frame", id=frame)

    def screenshot(self, name):
        os.makedirs(RESULTS, exist_ok=True)
        with open(f"{RESULTS}/{name}.png", "wb") as file:
            file.write(base64.b64decode(self.call("GET", "/screenshot")))


@contextlib.contextmanager
def browser():
    driver = subprocess.Popen(["chromedriver", "--port=9515", "--silent"])
    try:

        def is_ready():
            try:
                with urllib.request.urlopen(f"{DRIVER}/status", timeout=10) as answer:
                    return json.load(answer)["value"]["ready"]
            except urllib.error.URLError:
                return False

        wait_until("chromedriver", is_ready)
        with contextlib.closing(Browser()) as opened:
            yield opened
    finally:
        driver.terminate()
        driver.wait()


def log_in(page, url, password):
    page.open(url + LOGIN)
    page.type("#id_username", NAME)
    page.type("#id_password", password)
    page.screenshot("1-login")
    page.click("#loginBtn")
    page.wait_for("#sidebar-accordion")
    page.screenshot("2-overview")


def create_network(page, url):
    page.open(f"{url}/project/networks/")
    page.click("#networks__action_create")
    page.type("#id_net_name", NAME)
    page.click(".modal .button-next")
    page.type("#id_subnet_name", NAME)
    page.type("#id_cidr", RANGE)
    page.screenshot("3-network")
    page.click(".modal .button-next")
    page.click(".modal .button-final")
    page.wait_for(f"//table[@id='networks']//a[normalize-space()='{NAME}']")
    page.screenshot("4-networks")


def allocate(page, step, form):
    """Chooses the item of this name from a table of the wizard."""
    page.click(f"//wizard//*[contains(@class, 'wizard-nav')]//a[normalize-space()='{step}']")
    row = f"//ng-include[@ng-form='{form}']//tr[.//*[normalize-space(text())='{NAME}']]"
    # The only network is allocated already.
    page.wait_for(f"{row}//*[contains(@class, 'fa-arrow-')]")
    if page.find(f"{row}//*[contains(@class, 'fa-arrow-up')]"):
        page.click(f"{row}//*[contains(@class, 'fa-arrow-up')]")
        page.wait_for(f"{row}//*[contains(@class, 'fa-arrow-down')]")


def launch(page, url):
    page.open(f"{url}/project/instances/")
    page.click("//a[normalize-space()='Launch Instance']")
    page.type("//wizard//input[@id='name']", NAME)
    allocate(page, "Source", "launchInstanceSourceForm")
    page.screenshot("5-launch")
    allocate(page, "Flavor", "launchInstanceFlavorForm")
    allocate(page, "Networks", "launchInstanceNetworkForm")
    page.click("//wizard//button[contains(@class, 'finish')]")
    row = f"//table[@id='instances']//tr[.//a[normalize-space()='{NAME}']]"
    page.wait_for(f"{row}//*[normalize-space()='Running']")
    page.screenshot("6-instances")


def open_console(page):
    page.click(f"//table[@id='instances']//a[normalize-space()='{NAME}']")
    page.click("//a[normalize-space()='Console']")
    page.wait_for("#console_embed")
    page.enter_frame("#console_embed")
    page.wait_for("//*[@id='status' and starts-with(normalize-space(), 'Connected')]")
    page.wait_for("canvas")
    page.screenshot("7-console")


def use(url, password):
    with browser() as page:
        log_in(page, url, password)
        create_network(page, url)
        launch(page, url)
        open_console(page)


def delete_resources(cloud, project):
    for server in cloud.compute.servers(all_projects=True, project_id=project.id):
        cloud.delete_server(server.id, wait=True, timeout=LIMIT)
    for network in cloud.network.networks(project_id=project.id):
        cloud.network.delete_network(network)
    for group in cloud.network.security_groups(project_id=project.id):
        cloud.network.delete_security_group(group)


def main():
    cloud = openstack.connect()
    scheme, host = re.match(r"(https?)://([^/]+)", cloud.config.auth["auth_url"]).groups()
    url = f"{scheme}://horizon.{host.split('.', 1)[1]}"
    password = secrets.token_hex(16)
    with contextlib.ExitStack() as cleanup:
        project = cloud.identity.create_project(name=NAME, domain_id="default")
        cleanup.callback(cloud.identity.delete_project, project)
        user = cloud.identity.create_user(
            name=NAME, password=password, domain_id="default", default_project_id=project.id
        )
        cleanup.callback(cloud.identity.delete_user, user)
        role = cloud.identity.find_role("member", ignore_missing=False)
        cloud.identity.assign_project_role_to_user(project, user, role)
        dashboard = check_login(url, password)
        check_panels(cloud, dashboard)
        check_logout(dashboard)
        image = cloud.create_image(
            NAME, filename=GUEST, disk_format="qcow2", container_format="bare", visibility="public", wait=True
        )
        cleanup.callback(cloud.image.delete_image, image.id)
        flavor = cloud.create_flavor(NAME, 256, 1, 1)
        cleanup.callback(cloud.compute.delete_flavor, flavor.id)
        cleanup.callback(delete_resources, cloud, project)
        use(url, password)


main()
